"""Kernels of vLLM-Ascend's compiled operators, in plain torch on host tensors (see torch_npu.ops.binding)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_npu.ops import norm

Kernel = Callable[..., Any]
KERNELS: dict[str, Kernel] = {}
META: dict[str, Kernel] = {}


def kernel(meta: Kernel | None = None, *, shape_only: bool = False) -> Callable[[Kernel], Kernel]:
    """Register a function under its name. `meta` gives shapes for tracing; with `shape_only` the function does."""

    def register(function: Kernel) -> Kernel:
        KERNELS[function.__name__] = function
        if meta is not None or shape_only:
            META[function.__name__] = meta or function
        return function

    return register


@kernel(shape_only=True)
def npu_add_rms_norm_bias(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor | None = None, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """rms_norm(x1 + x2) * gamma + beta. Returns (y, rstd, the sum)."""
    y, rstd, total = norm.add_rms_norm(x1, x2, gamma, epsilon)
    return (y if beta is None else y + beta), rstd, total


@kernel(shape_only=True)
def npu_gemma_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """rms_norm(x) * (1 + gamma). Returns (y, rstd)."""
    y, rstd = norm.rms_norm(x, 1.0 + gamma, epsilon)
    return y, rstd


@kernel(shape_only=True)
def get_masked_input_and_mask(
    input: Tensor,  # noqa: A002  (a name of the signature)
    org_vocab_start_index: int,
    org_vocab_end_index: int,
    num_org_vocab_padding: int,
    added_vocab_start_index: int,
    added_vocab_end_index: int,
) -> tuple[Tensor, Tensor]:
    """Token ids → rows of this rank's part of a split embedding.

    The part holds the original vocabulary start..end, its padding, then the added vocabulary. Returns (row numbers like
    input, 0 where the token is not of this part; bool, true where it is not).
    """
    original = (input >= org_vocab_start_index) & (input < org_vocab_end_index)
    added = (input >= added_vocab_start_index) & (input < added_vocab_end_index)
    held = org_vocab_end_index - org_vocab_start_index + num_org_vocab_padding
    row = torch.where(original, input - org_vocab_start_index, input - added_vocab_start_index + held)
    return row.where(original | added, 0), ~(original | added)


def _expanded_meta(
    target_token_ids: Tensor, target_positions: Tensor, next_token_ids: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    slots, total = rest[4], rest[6]
    requests = next_token_ids.shape[0]
    int32 = (total, total, requests * slots, target_token_ids.shape[0])
    ids, positions, slot_index, mapping = (target_token_ids.new_empty(size, dtype=torch.int32) for size in int32)
    rejected, parallel = (target_token_ids.new_empty(total, dtype=torch.int8) for _ in range(2))
    return ids, positions, rejected, parallel, slot_index, mapping


@kernel(meta=_expanded_meta)
def npu_copy_and_expand_eagle_inputs(
    target_token_ids: Tensor,
    target_positions: Tensor,
    next_token_ids: Tensor,
    query_start_loc: Tensor,
    query_end_loc: Tensor,
    padding_token_id: int,
    parallel_drafting_token_id: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    total_draft_tokens: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Lay out the drafter's input: a request's kept tokens, its next token, slots for parallel drafting, its rejected
    tokens.

    target_token_ids, target_positions: int32 [T]; next_token_ids, query_end_loc (last kept row): int32 [R];
    query_start_loc: int32 [R + 1]. With S slots a request (the next token is the first), request r starts at
    query_start_loc[r] + r * S, or with shift_input_ids, where its first token is dropped, at query_start_loc[r] + r *
    (S - 1). Returns, with N = total_draft_tokens: input ids and positions int32 [N]; masks int8 [N] of the rejected
    tokens and of the parallel slots; the index of every slot, int32 [R * S]; and for shift_input_ids the row to which
    each target row's hidden state goes, int32 [T] (else 0). What no request covers is 0.
    """
    slots, drop = num_padding_slots_per_request, int(shift_input_ids)
    ids, positions = (torch.zeros(total_draft_tokens, dtype=torch.int32) for _ in range(2))
    rejected, parallel = (torch.zeros(total_draft_tokens, dtype=torch.int8) for _ in range(2))
    slot_index = torch.zeros(next_token_ids.shape[0] * slots, dtype=torch.int32)
    mapping = torch.zeros(target_token_ids.shape[0], dtype=torch.int32)
    starts, ends = query_start_loc.tolist(), query_end_loc.tolist()
    for request, (start, stop, end) in enumerate(zip(starts, starts[1:], ends, strict=False)):
        kept = target_token_ids[start + drop : end + 1]
        first = start + request * (slots - drop)
        bonus, tail = first + len(kept), first + len(kept) + slots
        ids[first:bonus] = kept
        ids[bonus] = next_token_ids[request]
        ids[bonus + 1 : tail] = parallel_drafting_token_id
        parallel[bonus + 1 : tail] = 1
        positions[first:tail] = target_positions[start] + torch.arange(tail - first, dtype=torch.int32)
        surplus = slice(tail, tail + max(stop - end - 1, 0))
        ids[surplus], rejected[surplus] = padding_token_id, 1
        slot_index[request * slots : (request + 1) * slots] = torch.arange(bonus, tail)
        if shift_input_ids:
            mapping[start:stop] = torch.arange(first, first + stop - start)
    return ids, positions, rejected, parallel, slot_index, mapping


@kernel()
def swap_blocks(x: Tensor, y: Tensor, z: Tensor) -> None:
    """y[to] = x[from] for each pair (from, to) of z, int64 [n, 2], between devices or on one."""
    for source, target in z.tolist():
        y[target].copy_(x[source])


@kernel()
def device_print(msg: str) -> None:
    """Print a text at its place in the device's queue."""
    print(msg, flush=True)


@kernel()
def device_print_tensor(tensor: Tensor) -> None:
    """Print a tensor at its place in the device's queue."""
    print(tensor, flush=True)


@kernel()
def get_npu_storage_shape(tensor: Tensor) -> list[int]:
    """The shape in memory; that of the tensor, since formats are not emulated."""
    return list(tensor.shape)
