"""The attention operators beside FIA: paged attention, flash attention of packed requests, npu_fusion_attention."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_npu.ops.attention_core import (
    CAUSAL,
    EVERYTHING,
    Band,
    attend,
    dense_keys,
    paged_keys,
    split_heads,
)
from torch_npu.ops.binding import npu
from torch_npu.ops.fused_infer_attention import workspace_bytes


def _packed(lengths: Sequence[int]) -> list[int]:
    """Where each of several packed requests starts."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts[:-1]


def _added_mask(mask: Tensor, starts: Sequence[int] | None) -> Any:
    """Bias of requests out of one mask of added values: [S, S] for all, or with `starts` a row per query row."""
    if mask.dim() != 2:
        raise NotImplementedError(
            f"attention with a mask of shape {list(mask.shape)} is not emulated; use [rows, keys]"
        )
    if mask.dtype == torch.bool or not mask.is_floating_point():
        raise ValueError(f"attention: this mask is added to the scores, so it must be floating point, not {mask.dtype}")

    def bias(request: int, length: int, width: int) -> Tensor:
        first = starts[request] if starts is not None else 0
        return mask[first : first + length, :width]

    return bias


@npu.call("_npu_paged_attention")
def paged_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, num_kv_heads: int, num_heads: int, scale_value: float,
    block_table: Tensor, context_lens: Tensor, out: Tensor, workspace: Tensor | None = None,
) -> None:  # fmt: skip
    """Decode: each of T query rows is a request of its own.

    query, out: [T, num_heads, D]; caches: [blocks, block size, num_kv_heads, D]; block_table: int32 [≥ T, columns];
    context_lens: int32 [≥ T], keys of each request, its newest token included. Rows of length 0 come out as 0.
    """
    if workspace is not None and workspace.nbytes < workspace_bytes(query):
        raise ValueError(
            f"_npu_paged_attention: a workspace of {workspace.nbytes} bytes, {workspace_bytes(query)} are needed"
        )
    rows = query.shape[0]
    lengths = context_lens.tolist()[:rows]
    if len(lengths) < rows:
        raise ValueError(f"_npu_paged_attention: {len(lengths)} context_lens for {rows} query rows")
    keys = paged_keys(key_cache, value_cache, block_table, lengths)
    out.copy_(attend(split_heads(query, num_heads), [1] * rows, keys, scale_value).output.view(out.shape))


def _paged_attention_get_workspace(query: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty(workspace_bytes(query), dtype=torch.uint8, device=query.device)


npu.exported["_npu_paged_attention_get_workspace"] = _paged_attention_get_workspace


@npu.call("_npu_paged_attention_splitfuse")
def paged_attention_splitfuse(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, mask: Tensor, block_table: Tensor, seq_len: Tensor,
    context_lens: Tensor, num_kv_heads: int, num_heads: int, scale_value: float, out: Tensor,
) -> None:  # fmt: skip
    """Chunked prefill: request i owns seq_len[i] query rows and context_lens[i] keys; mask [T, keys] is added."""
    lengths = seq_len.tolist()
    keys = paged_keys(key_cache, value_cache, block_table, context_lens.tolist()[: len(lengths)])
    rows = split_heads(query, num_heads)
    out.copy_(attend(rows, lengths, keys, scale_value, bias=_added_mask(mask, _packed(lengths))).output.view(out.shape))


def _flash(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], heads: int, key_heads: int, scale: float,
           bias: Any = None) -> Tensor:  # fmt: skip
    rows = split_heads(query, heads)
    keys = dense_keys(split_heads(key, key_heads), split_heads(value, key_heads), _packed(lengths), lengths)
    return attend(rows, lengths, keys, scale, EVERYTHING, bias).output


@npu.call("_npu_flash_attention")
def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, seq_len: Tensor, scale_value: float, num_heads: int,
    num_kv_heads: int, out: Tensor,
) -> None:  # fmt: skip
    """Prefill of packed requests; mask [S, S], S at least the longest request, is added to the scores of each.

    query, out: [T, num_heads, D] or [T, num_heads * D]; key, value: [T, num_kv_heads, D]; seq_len: int32 [requests].
    """
    result = _flash(query, key, value, seq_len.tolist(), num_heads, num_kv_heads, scale_value, _added_mask(mask, None))
    out.copy_(result.view(out.shape))


@npu.call("_npu_flash_attention_unpad")
def flash_attention_unpad(
    query: Tensor, key: Tensor, value: Tensor, seq_len: Tensor, scale_value: float, num_heads: int, num_kv_heads: int,
    out: Tensor,
) -> None:  # fmt: skip
    """`flash_attention` without a mask."""
    out.copy_(_flash(query, key, value, seq_len.tolist(), num_heads, num_kv_heads, scale_value).view(out.shape))


def _fusion_meta(query: Tensor, key: Tensor, value: Tensor, head_num: int, *_: Any, **__: Any) -> Any:
    statistic = query.new_empty((query.shape[0], head_num, 8), dtype=torch.float32)
    return torch.empty_like(query), statistic, torch.empty_like(statistic), query.new_empty(0), 0, 0, 0


@npu.operator(
    "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, "
    "int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False) "
    "-> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    meta=_fusion_meta,
)
def fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, *, pse: Tensor | None = None,
    padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, scale: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = 2147483647, next_tockens: int = 2147483647, inner_precise: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """Attention of packed requests as training code calls it (layout TND, no drop-out).

    query: [T, head_num, D]; key, value: [S, key heads, D]; actual_seq_*: running totals, closed by zeros where rows
    follow that belong to no request. Sparse modes 0 (no mask), 2, 3 and 4 as in FIA.
    Returns (output, softmax max and sum fp32 [T, head_num, 8], an empty tensor, seed, offset, number of random values).
    """
    if input_layout != "TND" or pse is not None or prefix is not None or padding_mask is not None or keep_prob != 1.0:
        raise NotImplementedError(
            "npu_fusion_attention is emulated for input_layout TND without pse, prefix and drop-out"
        )
    if sparse_mode not in (0, 2, 3, 4) or (sparse_mode == 0 and atten_mask is not None):
        raise NotImplementedError(f"npu_fusion_attention with sparse_mode {sparse_mode} and this mask is not emulated")
    if actual_seq_qlen is None or actual_seq_kvlen is None:
        raise ValueError("npu_fusion_attention: input_layout TND needs actual_seq_qlen and actual_seq_kvlen")
    if sparse_mode != 0 and atten_mask is None:
        raise ValueError(f"npu_fusion_attention: sparse_mode {sparse_mode} needs atten_mask")
    band = {0: EVERYTHING, 2: Band(after=0, from_start=True), 3: CAUSAL, 4: Band(pre_tockens, next_tockens)}[
        sparse_mode
    ]
    lengths = _differences(actual_seq_qlen)
    key_lengths = _differences(actual_seq_kvlen)
    keys = dense_keys(key, value, _packed(key_lengths), key_lengths)
    result = attend(split_heads(query, head_num), lengths, keys, scale, band)
    top, total = (x[..., None].repeat(1, 1, 8) for x in (result.row_max, result.row_sum))
    return result.output, top, total, query.new_empty(0), 0, 0, 0


def _differences(totals: Sequence[int]) -> list[int]:
    return [max(end - start, 0) for start, end in zip([0, *totals], totals, strict=False)]
