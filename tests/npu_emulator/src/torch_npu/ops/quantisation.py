"""Int8 quantisation: what graph passes of the hosts must find to be built. Dense fp models call none of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_npu.ops.binding import npu
from torch_npu.ops.norm import add_rms_norm

LIMIT = 127


def to_int8(x: Tensor) -> Tensor:
    """Round half to even and saturate."""
    return x.round().clamp(-LIMIT - 1, LIMIT).to(torch.int8)


def dynamic_int8(x: Tensor, smooth: Tensor | None) -> tuple[Tensor, Tensor]:
    """Symmetric int8 per row: (q like x, scale fp32 [...] with x * smooth ≈ q * scale)."""
    wide = x.float() if smooth is None else x.float() * smooth.float()
    scale = wide.abs().amax(-1) / LIMIT
    return to_int8(wide / scale.masked_fill(scale == 0, 1.0)[..., None]), scale


def _no_float_target(name: str, dtype: object) -> None:
    if dtype not in (None, torch.int8, torch.qint8, 1):
        raise NotImplementedError(f"{name} to {dtype} is not emulated; to int8 it is")


@npu.operator(
    "npu_dynamic_quant(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, "
    "ScalarType? dst_type=None) -> (Tensor, Tensor)"
)
def dynamic_quant(
    x: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """`dynamic_int8` of x [..., H] with smooth_scales [H]."""
    _no_float_target("npu_dynamic_quant", dst_type)
    if group_index is not None:
        raise NotImplementedError("npu_dynamic_quant with group_index is not emulated")
    return dynamic_int8(x, smooth_scales)


@npu.operator(
    "npu_quantize(Tensor self, Tensor scales, Tensor? zero_points, ScalarType dtype, int axis=1, bool div_mode=True) "
    "-> Tensor"
)
def quantize(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    dtype: torch.dtype,
    axis: int = 1,
    div_mode: bool = True,
) -> Tensor:
    """int8 of x / scales + zero_points, or without div_mode x * scales + zero_points; scales lie along `axis`."""
    _no_float_target("npu_quantize", dtype)
    shape = [1] * x.dim()
    shape[axis] = -1
    scale = scales.float().reshape(shape)
    scaled = x.float() / scale if div_mode else x.float() * scale
    return to_int8(scaled if zero_points is None else scaled + zero_points.float().reshape(shape))


@npu.operator(
    "npu_add_rms_norm_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1, "
    "Tensor? beta=None, Tensor? scales2=None, Tensor? zero_points2=None, *, int axis=-1, float epsilon=1e-06, "
    "bool div_mode=True) -> (Tensor, Tensor, Tensor)"
)
def add_rms_norm_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    scales1: Tensor,
    zero_points1: Tensor | None,
    beta: Tensor | None = None,
    scales2: Tensor | None = None,
    zero_points2: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-6,
    div_mode: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """`add_rms_norm` (+ beta), then `quantize`. Returns (int8 y1, int8 y2, the sum); without scales2, y2 is y1."""
    y, _, total = add_rms_norm(x1, x2, gamma, epsilon)
    if beta is not None:
        y = y + beta
    first = quantize(y, scales1, zero_points1, torch.int8, axis, div_mode)
    second = first.clone() if scales2 is None else quantize(y, scales2, zero_points2, torch.int8, axis, div_mode)
    return first, second, total


@npu.operator(
    "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? smooth_scale1=None, "
    "Tensor? smooth_scale2=None, Tensor? beta=None, float epsilon=1e-06, bool[2] output_mask=[]) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def add_rms_norm_dynamic_quant(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    *,
    smooth_scale1: Tensor | None = None,
    smooth_scale2: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: Sequence[bool] = (),
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`add_rms_norm` (+ beta) followed by `dynamic_int8`, once per smoothing scale.

    Returns (int8 y1, int8 y2, the sum, scale1, scale2); without smooth_scale2 the second pair equals the first.
    """
    y, _, total = add_rms_norm(x1, x2, gamma, epsilon)
    if beta is not None:
        y = y + beta
    first, scale1 = dynamic_int8(y, smooth_scale1)
    second, scale2 = dynamic_int8(y, smooth_scale2) if smooth_scale2 is not None else (first.clone(), scale1.clone())
    return first, second, total, scale1, scale2
