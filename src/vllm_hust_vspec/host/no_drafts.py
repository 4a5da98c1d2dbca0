"""Steps without drafts cost what they cost without speculation.

A server with a speculative config sends every step through the rejection sampler and the drafter, also a prefill and a
step at gamma 0. There the result is known: the sampler's own token for each request, and no drafts.
"""

from __future__ import annotations

from typing import Any

SAMPLE = "vllm.v1.worker.gpu_model_runner:GPUModelRunner._sample"
NGRAM = "vllm.v1.spec_decode.ngram_proposer:NgramProposer.propose"


def sample(original: Any, runner: Any, logits: Any, spec_decode_metadata: Any) -> Any:
    """Sample without the rejection sampler where no request has a draft.

    logits: [num_reqs + num_draft_tokens, vocab_size], one row a request when there are no drafts.
    """
    if spec_decode_metadata is not None and spec_decode_metadata.max_spec_len == 0:
        spec_decode_metadata = None
    return original(runner, logits, spec_decode_metadata)


def propose_ngram(
    original: Any, proposer: Any, num_speculative_tokens: int, sampled_token_ids: Any, *args: Any, **kwargs: Any
) -> Any:
    """Look nothing up where nothing is asked for. Returns a list of drafts for each request."""
    if num_speculative_tokens == 0:
        return [[] for _ in sampled_token_ids]
    return original(proposer, num_speculative_tokens, sampled_token_ids, *args, **kwargs)
