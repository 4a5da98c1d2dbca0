"""Matrix products that are operators of their own on the device, some of them fused with a collective."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import AllreduceOptions, ReduceScatterOptions, distributed_c10d

from torch_npu.ops.binding import npu


@npu.call("_npu_matmul_add_fp32")
def matmul_add_fp32(x: Tensor, weight: Tensor, c: Tensor) -> None:
    """c += xᵀ weight, in fp32: the weight gradient of a linear layer (hosts call it once, to warm up).

    x: [T, N] and weight: [T, M], half precision; c: fp32 [N, M], written in place.
    """
    c.add_(x.float().T @ weight.float())


def _gloo(hcom: str) -> Any:
    """The host's communication group behind a name that `get_hccl_comm_name` gave: emulated:GROUP:RANK."""
    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    return resolve(hcom.removeprefix("emulated:").rpartition(":")[0])._get_backend(torch.device("npu")).gloo


def _product(name: str, x1: Tensor, x2: Tensor, reduce_op: str, bias: Tensor | None, options: dict[str, Any]) -> Tensor:
    quantised = sorted(key for key, value in options.items() if isinstance(value, Tensor))
    if quantised:
        raise NotImplementedError(f"{name} with {', '.join(quantised)} is not emulated")
    if reduce_op != "sum":
        raise ValueError(f"{name}: reduce_op must be 'sum', not {reduce_op!r}")
    product = x1 @ x2
    return product if bias is None else product + bias


@npu.call("npu_mm_all_reduce_base")
def mm_all_reduce_base(
    x1: Tensor, x2: Tensor, hcom: str, *, reduce_op: str = "sum", bias: Tensor | None = None, **options: Any
) -> Tensor:
    """The sum over all ranks of x1 @ x2 + bias. x1: [..., K]; x2: [K, N]; bias: [N]. Returns [..., N]."""
    product = _product("npu_mm_all_reduce_base", x1, x2, reduce_op, bias, options)
    _gloo(hcom).allreduce([product], AllreduceOptions()).wait()
    return product


@npu.call("npu_mm_reduce_scatter_base")
def mm_reduce_scatter_base(
    x1: Tensor,
    x2: Tensor,
    hcom: str,
    world_size: int,
    *,
    reduce_op: str = "sum",
    bias: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """This rank's rows [T / W, N] of the sum over all W ranks of x1 @ x2 + bias. x1: [T, K], T a multiple of W."""
    product = _product("npu_mm_reduce_scatter_base", x1, x2, reduce_op, bias, options)
    if product.shape[0] % world_size:
        raise ValueError(f"npu_mm_reduce_scatter_base: {product.shape[0]} rows do not split over {world_size} ranks")
    part = product.new_empty(product.shape[0] // world_size, *product.shape[1:])
    _gloo(hcom)._reduce_scatter_base(part, product.contiguous(), ReduceScatterOptions()).wait()
    return part
