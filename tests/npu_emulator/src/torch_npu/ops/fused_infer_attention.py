"""npu_fused_infer_attention_score (FIA), versions 1 and 2: prefill, chunked prefill, decode and verification of drafts.

The `out` forms, which graph mode calls and updates, take a workspace and refuse one that is too small.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_npu.graph import device_call
from torch_npu.ops.binding import OverloadedCall, device_kernel, npu
from torch_npu.ops.fused_infer_core import Lengths, fused_infer_attention

_V1 = (
    "(Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, "
    "Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
    "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
    "Tensor? block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, "
    "float scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout='BSH', "
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, "
    "int key_antiquant_mode=0, int value_antiquant_mode=0, bool softmax_lse_flag=False) -> (Tensor, Tensor)"
)
_V2 = (
    "(Tensor query, Tensor key, Tensor value, *, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_kvlen=None, "
    "Tensor? block_table=None, Tensor? dequant_scale_query=None, Tensor? dequant_scale_key=None, "
    "Tensor? dequant_offset_key=None, Tensor? dequant_scale_value=None, Tensor? dequant_offset_value=None, "
    "Tensor? dequant_scale_key_rope=None, Tensor? quant_scale_out=None, Tensor? quant_offset_out=None, "
    "Tensor? learnable_sink=None, int num_query_heads=1, int num_key_value_heads=0, float softmax_scale=1.0, "
    "int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout='BSH', int sparse_mode=0, "
    "int block_size=0, int query_quant_mode=0, int key_quant_mode=0, int value_quant_mode=0, int inner_precise=0, "
    "bool return_softmax_lse=False, int? query_dtype=None, int? key_dtype=None, int? value_dtype=None, "
    "int? query_rope_dtype=None, int? key_rope_dtype=None, int? key_shared_prefix_dtype=None, "
    "int? value_shared_prefix_dtype=None, int? dequant_scale_query_dtype=None, int? dequant_scale_key_dtype=None, "
    "int? dequant_scale_value_dtype=None, int? dequant_scale_key_rope_dtype=None) -> (Tensor, Tensor)"
)


def _refuse(name: str, unsupported: dict[str, Any]) -> None:
    given = sorted(key for key, value in unsupported.items() if isinstance(value, (Tensor, list, tuple)))
    if given:
        raise NotImplementedError(f"{name} with {', '.join(given)} is not emulated")


def _meta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    input_layout: str = "BSH",
    softmax_lse_flag: bool = False,
    return_softmax_lse: bool = False,
    num_heads: int = 1,
    num_query_heads: int = 1,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    heads = max(num_heads, num_query_heads)
    output = query.transpose(1, 2) if input_layout == "BNSD_BSND" else query
    if not (softmax_lse_flag or return_softmax_lse):
        return torch.empty_like(output), query.new_empty(1, dtype=torch.float32)
    batch_axes = {"TND": (query.shape[0], heads, 1)}
    length = query.shape[2] if input_layout.startswith("BNSD") else query.shape[1]
    shape = batch_axes.get(input_layout, (query.shape[0], heads, length, 1))
    return torch.empty_like(output), query.new_empty(shape, dtype=torch.float32)


@npu.operator("npu_fused_infer_attention_score" + _V1, meta=_meta)
def fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Lengths = None,
    actual_seq_lengths_kv: Lengths = None,
    block_table: Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    softmax_lse_flag: bool = False,
    **unsupported: Any,
) -> tuple[Tensor, Tensor]:
    """`fused_infer_attention` under the names of version 1."""
    _refuse("npu_fused_infer_attention_score", unsupported)
    return fused_infer_attention(
        query,
        key,
        value,
        heads=num_heads,
        key_heads=num_key_value_heads,
        scale=scale,
        layout=input_layout,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        query_lengths=actual_seq_lengths,
        key_lengths=actual_seq_lengths_kv,
        block_table=block_table,
        block_size=block_size,
        sinks=None,
        return_lse=softmax_lse_flag,
    )


@npu.operator("npu_fused_infer_attention_score_v2" + _V2, meta=_meta)
def fused_infer_attention_score_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Lengths = None,
    actual_seq_kvlen: Lengths = None,
    block_table: Tensor | None = None,
    learnable_sink: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    return_softmax_lse: bool = False,
    **unsupported: Any,
) -> tuple[Tensor, Tensor]:
    """`fused_infer_attention` under the names of version 2, which adds learnable_sink [H]."""
    _refuse("npu_fused_infer_attention_score_v2", unsupported)
    return fused_infer_attention(
        query,
        key,
        value,
        heads=num_query_heads,
        key_heads=num_key_value_heads,
        scale=softmax_scale,
        layout=input_layout,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        query_lengths=actual_seq_qlen,
        key_lengths=actual_seq_kvlen,
        block_table=block_table,
        block_size=block_size,
        sinks=learnable_sink,
        return_lse=return_softmax_lse,
    )


def workspace_bytes(query: Tensor) -> int:
    """The workspace that the `out` forms ask for; like on hardware it grows with the query."""
    return 512 + 4 * query.numel()


def _out_form(name: str, functional: Any) -> Any:
    """The `out` form of one version: one device call, results into out = [output, log-sum-exp]."""

    def write(*, out: Sequence[Tensor], workspace: Tensor | None = None, **arguments: Any) -> None:
        query = arguments["query"]
        if workspace is not None and workspace.nbytes < workspace_bytes(query):
            raise ValueError(f"{name}: a workspace of {workspace.nbytes} bytes, {workspace_bytes(query)} are needed")
        lse_wanted = arguments.get("softmax_lse_flag") or arguments.get("return_softmax_lse")
        results = functional(arguments.pop("query"), arguments.pop("key"), arguments.pop("value"), **arguments)
        for target, result in list(zip(out, results, strict=True))[: 2 if lse_wanted else 1]:
            if target.numel() != result.numel():
                raise ValueError(f"{name}: out {list(target.shape)} cannot hold a result {list(result.shape)}")
            target.copy_(result.view(target.shape))

    launch = device_call(name)(device_kernel(write))

    def call(*, out: Sequence[Tensor], **arguments: Any) -> Sequence[Tensor]:
        launch(out=out, **arguments)
        return out

    return call


def _workspace(query: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty(workspace_bytes(query), dtype=torch.uint8, device=query.device)


for _name, _functional in (
    ("npu_fused_infer_attention_score", fused_infer_attention_score),
    ("npu_fused_infer_attention_score_v2", fused_infer_attention_score_v2),
):
    npu.exported[_name] = OverloadedCall(npu.exported[_name], _out_form(f"{_name}.out", _functional))
    npu.exported[f"_{_name}_get_max_workspace"] = _workspace
