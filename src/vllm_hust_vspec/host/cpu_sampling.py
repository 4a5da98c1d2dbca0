"""Sampled requests under speculation on vLLM's CPU backend, repaired.

The CPU fallback of the rejection sampler's expand kernel converts float operands to int64 copies and fills a copy of
the output. What a batch with one sampled row then reads as temperature or top-p is uninitialised memory, which turns
every row of it into garbage, the greedy ones too.
"""

from __future__ import annotations

from typing import Any

EXPAND = "vllm.v1.sample.rejection_sampler:expand_batch_to_tokens"


def expand(
    original: Any, x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Any:
    """Repeat x[i] for each token of request i, writing replace_to where x equals replace_from.

    x: any dtype [B]; cu_num_tokens: int32 [B], running sum of tokens per request; num_tokens: its last value.
    Returns x's dtype [num_tokens].
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return x.repeat_interleave(counts, output_size=num_tokens)


def expand_is_broken() -> bool:
    """Whether this host's kernel loses float values: asked of the kernel itself, on a CPU host."""
    import torch
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return False
    from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

    values = torch.tensor([0.5, 0.25])
    try:
        expanded = expand_batch_to_tokens(values, torch.tensor([1, 3], dtype=torch.int32), 3)
    except Exception:
        return True
    return not torch.equal(expanded, torch.tensor([0.5, 0.25, 0.25]))
