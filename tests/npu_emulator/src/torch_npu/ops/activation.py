"""Activation functions."""

from torch import Tensor
from torch.nn import functional

from torch_npu.ops.binding import npu


@npu.operator("npu_swiglu(Tensor self, int dim=-1) -> Tensor")
def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """silu(first half) * second half along `dim`, in fp32; that dimension must be even."""
    if x.shape[dim] % 2:
        raise ValueError(f"npu_swiglu: dimension {dim} of {list(x.shape)} is odd")
    gate, up = x.float().chunk(2, dim)
    return (functional.silu(gate) * up).to(x.dtype)


@npu.operator("npu_fast_gelu(Tensor self) -> Tensor")
def fast_gelu(x: Tensor) -> Tensor:
    """x * sigmoid(1.702 x), the hardware's quick GELU."""
    wide = x.float()
    return (wide * (1.702 * wide).sigmoid()).to(x.dtype)
