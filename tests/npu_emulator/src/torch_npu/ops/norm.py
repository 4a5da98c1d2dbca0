"""Root mean square normalisation, plain and fused with the residual addition."""

import torch
from torch import Tensor

from torch_npu.ops.binding import npu


@npu.operator("npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)")
def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Normalise the trailing dimensions that `gamma` spans by their root mean square, computed in fp32.

    x: [..., *gamma.shape]. Returns (y like x, rstd fp32 [..., 1 per normalised dimension]).
    """
    if x.shape[x.dim() - gamma.dim() :] != gamma.shape:
        raise ValueError(
            f"npu_rms_norm: gamma {tuple(gamma.shape)} does not match the last dimensions of {tuple(x.shape)}"
        )
    normalised = list(range(x.dim() - gamma.dim(), x.dim()))
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(normalised, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


@npu.operator("npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)")
def add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise x1 + x2. Returns (y, rstd, the sum), y and the sum like x1, rstd as `rms_norm`."""
    total = x1 + x2
    y, rstd = rms_norm(total, gamma, epsilon)
    return y, rstd, total
