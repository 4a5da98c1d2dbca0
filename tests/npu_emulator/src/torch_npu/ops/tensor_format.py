"""Memory formats. The emulator keeps every tensor in the plain format ND: a cast is a copy, every format reads ND."""

from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from torch_npu.ops.binding import npu


class Format(IntEnum):
    """The numbers that CANN gives to memory formats."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    FRACTAL_NZ = 29
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33


npu.exported["Format"] = Format


@npu.operator(
    "npu_format_cast(Tensor self, int acl_format, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor",
    meta=lambda x, *rest, **options: torch.empty_like(x),
)
def format_cast(
    x: Tensor, acl_format: int, *, customize_dtype: int | None = None, input_dtype: int | None = None
) -> Tensor:
    """A copy of x; shape and values are those that a host sees on hardware too."""
    if customize_dtype is not None or input_dtype is not None:
        raise NotImplementedError("npu_format_cast with customize_dtype or input_dtype is not emulated")
    return x.clone()


@npu.function
def get_npu_format(tensor: Tensor) -> Format:
    """ND, always."""
    return Format.ND


@npu.function
def empty_with_format(
    size: Any, dtype: torch.dtype | None = None, device: Any = "npu", acl_format: int = Format.ND, **options: Any
) -> Tensor:
    """An uninitialised tensor; the format is not kept."""
    return torch.empty(size, dtype=dtype, device=device, **options)


@npu.call("npu_prefetch")
def prefetch(x: Tensor, dependency: Tensor | None, max_size: int, offset: int = 0) -> None:
    """Warm the hardware's cache with x. It has no effect on any value, here none at all."""
