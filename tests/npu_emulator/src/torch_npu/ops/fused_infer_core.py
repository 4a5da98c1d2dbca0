"""What npu_fused_infer_attention_score (FIA) computes, in every layout and sparse mode that the hosts use.

What the hardware refuses is refused here: a compressed mask that is missing or not causal, and lengths that do not add
up to the query. Unlike the hardware it also takes fp32.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_npu.ops.attention_core import (
    CAUSAL,
    EVERYTHING,
    Attended,
    Band,
    Keys,
    attend,
    dense_keys,
    paged_keys,
    split_heads,
)

LAYOUTS = ("TND", "BSH", "BSND", "BNSD", "BNSD_BSND")
COMPRESSED_MASK = 2048
Lengths = Sequence[int] | Tensor | None


def fused_infer_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    heads: int,
    key_heads: int,
    scale: float,
    layout: str,
    mask: Tensor | None,
    sparse_mode: int,
    pre_tokens: int,
    next_tokens: int,
    query_lengths: Lengths,
    key_lengths: Lengths,
    block_table: Tensor | None,
    block_size: int,
    sinks: Tensor | None,
    return_lse: bool,
) -> tuple[Tensor, Tensor]:
    """Attention of B requests. H = heads, N = key heads (0: as heads), H a multiple of N.

    Layout TND: query [T, H, D], query_lengths the running totals of the requests' query lengths, the last of them T;
    key and value [S, N, D] with key_lengths running totals, or paged. Other layouts: query [B, S, H * D] (BSH), [B, S,
    H, D] (BSND) or [B, H, S, D] (BNSD, BNSD_BSND), lengths per request, default: all of it; rows beyond a length come
    out as 0. Paged: block_table int32 [≥ B, columns], key and value [blocks, block_size, N * D] or [blocks, N,
    block_size, D], key_lengths per request.
    Sparse modes: 0 no mask, or the full mask (true hides; not with TND); 1 the full mask; 2 and 3 causal, aligned at
    the start or at the end of the keys; 4 a band of pre_tokens and next_tokens around the query's own position, aligned
    at the end. Returns (output in the query's layout, log-sum-exp fp32 [T, H, 1] or [B, H, S, 1], inf where a row sees
    no key; without return_lse one zero).
    """
    if layout not in LAYOUTS:
        raise NotImplementedError(f"FIA input_layout {layout!r} is not emulated; there are {', '.join(LAYOUTS)}")
    if query.numel() == 0:
        return torch.empty_like(query), torch.zeros(1)
    key_heads = key_heads or heads
    rows, lengths, batch_shape = _flatten_queries(query, heads, layout, query_lengths)
    keys = _keys(key, value, key_heads, layout, lengths, key_lengths, block_table, block_size)
    band, full_mask = _mask(mask, sparse_mode, pre_tokens, next_tokens, layout, batch_shape)

    bias = None
    if full_mask is not None:

        def bias(request: int, length: int, width: int) -> Tensor:
            hidden = full_mask[request if full_mask.shape[0] > 1 else 0][:length, :width]
            return torch.zeros(hidden.shape).masked_fill_(hidden.bool(), float("-inf"))

    if batch_shape is None:
        result = attend(rows, lengths, keys, scale, band, bias, sinks)
        lse = result.log_sum_exp()[..., None] if return_lse else torch.zeros(1)
        return result.output, lse
    result = _attend_padded(rows, lengths, batch_shape, keys, scale, band, bias, sinks)
    output = result.output.view(*batch_shape, *result.output.shape[1:])
    lse = torch.zeros(1)
    if return_lse:
        lse = result.log_sum_exp().view(*batch_shape, heads).transpose(1, 2)[..., None]
    if layout == "BSH":
        return output.flatten(2), lse
    return (output.transpose(1, 2).contiguous() if layout == "BNSD" else output), lse


def _flatten_queries(
    query: Tensor, heads: int, layout: str, lengths: Lengths
) -> tuple[Tensor, list[int], tuple[int, int] | None]:
    """(query as [rows, H, D], query length of each request, None for TND, else (B, S))."""
    if layout == "TND":
        if lengths is None:
            raise ValueError("FIA: actual_seq_lengths is required with input_layout TND")
        totals = [int(total) for total in lengths]
        counts = [end - start for start, end in zip([0, *totals], totals, strict=False)]
        if min(counts, default=0) < 0:
            raise ValueError(f"FIA: actual_seq_lengths must not decrease with input_layout TND: {totals}")
        if not totals or totals[-1] != query.shape[0]:
            raise ValueError(
                f"FIA: the last of actual_seq_lengths ({totals[-1:]}) must be the query's rows ({query.shape[0]})"
            )
        return split_heads(query, heads), counts, None
    if layout.startswith("BNSD"):
        query = query.transpose(1, 2)
    batch, length = query.shape[:2]
    counts = [length] * batch if lengths is None else _per_request(lengths, batch, "actual_seq_lengths")
    if max(counts) > length:
        raise ValueError(f"FIA: actual_seq_lengths {counts} exceed the query's {length} rows")
    return split_heads(query.flatten(0, 1), heads), counts, (batch, length)


def _per_request(lengths: Sequence[int] | Tensor, batch: int, name: str) -> list[int]:
    """The first `batch` lengths; a single one holds for every request."""
    values = [int(length) for length in lengths]
    if len(values) == 1:
        values *= batch
    if len(values) < batch:
        raise ValueError(f"FIA: {name} has {len(values)} entries for {batch} requests")
    return values[:batch]


def _keys(
    key: Tensor,
    value: Tensor,
    heads: int,
    layout: str,
    query_lengths: list[int],
    lengths: Lengths,
    block_table: Tensor | None,
    block_size: int,
) -> Keys:
    batch = len(query_lengths)
    if block_table is not None:
        if lengths is None:
            raise ValueError("FIA: actual_seq_lengths_kv is required with a block table")
        pages = _as_pages(key, heads, block_size), _as_pages(value, heads, block_size)
        return paged_keys(*pages, block_table, _per_request(lengths, batch, "actual_seq_lengths_kv"))
    if layout == "TND":
        if lengths is None:
            raise ValueError("FIA: actual_seq_lengths_kv is required with input_layout TND")
        ends = _per_request(lengths, batch, "actual_seq_lengths_kv")
        starts = [0, *ends[:-1]]
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        return dense_keys(split_heads(key, heads), split_heads(value, heads), starts, counts)
    if layout.startswith("BNSD"):
        key, value = key.transpose(1, 2), value.transpose(1, 2)
    width = key.shape[1]
    counts = [width] * batch if lengths is None else _per_request(lengths, batch, "actual_seq_lengths_kv")
    if max(counts) > width:
        raise ValueError(f"FIA: actual_seq_lengths_kv {counts} exceed the {width} keys")
    flat = split_heads(key.flatten(0, 1), heads), split_heads(value.flatten(0, 1), heads)
    return dense_keys(*flat, [request * width for request in range(batch)], counts)


def _as_pages(cache: Tensor, heads: int, block_size: int) -> Tensor:
    """A cache as [blocks, block_size, N, D]."""
    if cache.dim() == 3 and cache.shape[1] == block_size and cache.shape[2] % heads == 0:
        return cache.view(*cache.shape[:2], heads, -1)
    if cache.dim() == 4 and cache.shape[1:3] == (heads, block_size):
        return cache.transpose(1, 2)
    raise NotImplementedError(
        f"FIA: a paged cache of shape {list(cache.shape)} is not emulated; with {heads} key heads and block_size "
        f"{block_size} it is [blocks, {block_size}, {heads} * D] or [blocks, {heads}, {block_size}, D]"
    )


def _mask(
    mask: Tensor | None, mode: int, before: int, after: int, layout: str, batch_shape: tuple[int, int] | None
) -> tuple[Band, Tensor | None]:
    """The band of a sparse mode, and the full mask [B or 1, S, keys] where there is one."""
    if mode in (2, 3, 4):
        if batch_shape is not None and batch_shape[1] == 1:
            return EVERYTHING, None  # one query row a request: the hardware ignores the sparse mode
        _check_compressed(mask, mode)
        return {2: Band(after=0, from_start=True), 3: CAUSAL, 4: Band(before, after)}[mode], None
    if mode not in (0, 1):
        raise NotImplementedError(f"FIA sparse_mode {mode} is not emulated; there are 0 to 4")
    if mask is None:
        if mode == 1:
            raise ValueError("FIA: sparse_mode 1 needs the full mask in atten_mask")
        return EVERYTHING, None
    if layout == "TND":
        raise ValueError(f"FIA: sparse_mode {mode} takes no atten_mask with input_layout TND; use sparse_mode 3")
    return EVERYTHING, mask.reshape(-1, *mask.shape[-2:])


def _check_compressed(mask: Tensor | None, mode: int) -> None:
    """Modes 2 to 4 read the causal pattern from a 2048 x 2048 mask; look at it where it must be 0 and where 1."""
    size = COMPRESSED_MASK
    if mask is None or tuple(mask.shape[-2:]) != (size, size) or mask.numel() != size * size:
        shape = None if mask is None else list(mask.shape)
        raise ValueError(f"FIA: sparse_mode {mode} needs atten_mask of shape [{size}, {size}], not {shape}")
    if mask.dtype not in (torch.bool, torch.int8, torch.uint8):
        raise ValueError(f"FIA: atten_mask must be bool, int8 or uint8, not {mask.dtype}")
    corners = mask.reshape(size, size)[[0, 0, 1, 1, 0, size - 1, size - 1], [0, 1, 0, 2, size - 1, 0, size - 1]]
    if corners.tolist() != [0, 1, 0, 1, 1, 0, 0]:
        raise ValueError(f"FIA: sparse_mode {mode} needs the strictly upper triangular atten_mask; this one is not")


def _attend_padded(
    rows: Tensor, lengths: list[int], batch_shape: tuple[int, int], keys: Keys, *options: Any
) -> Attended:
    """`attend` where each request owns batch_shape[1] rows and uses the first of them."""
    batch, stride = batch_shape
    if all(length == stride for length in lengths):
        return attend(rows, lengths, keys, *options)
    used = torch.cat([torch.arange(length) + request * stride for request, length in enumerate(lengths)])
    part = attend(rows[used], lengths, keys, *options)
    whole = Attended(
        part.output.new_zeros(batch * stride, *part.output.shape[1:]),
        torch.full((batch * stride, rows.shape[1]), float("-inf")),
        torch.zeros(batch * stride, rows.shape[1]),
    )
    for target, source in zip(
        (whole.output, whole.row_max, whole.row_sum), (part.output, part.row_max, part.row_sum), strict=True
    ):
        target[used] = source
    return whole
