"""`triton.language.extra.cann`: what triton-ascend adds to the language, for Triton's interpreter."""

import math
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.language import core, extra, semantic
from triton.language.extra import libdevice
from triton.runtime.interpreter import TensorHandle

CANN = "triton.language.extra.cann"


def _number(value: Any) -> int:
    value = value.value if isinstance(value, tl.constexpr) else value
    return int(np.asarray(value.handle.data).reshape(-1)[0]) if isinstance(value, tl.tensor) else int(value)


def _numbers(values: Any) -> list[int]:
    return [_number(value) for value in (values.value if isinstance(values, tl.constexpr) else values)]


def _region(offsets: Any, sizes: Any, strides: Any) -> tuple[slice, ...]:
    triples = zip(_numbers(offsets), _numbers(sizes), _numbers(strides), strict=True)
    return tuple(slice(offset, offset + size * stride, stride) for offset, size, stride in triples)


def _tensor(data: Any, like: tl.tensor) -> tl.tensor:
    scalar = like.type.scalar
    data = np.asarray(data)
    kind = tl.block_type(scalar, list(data.shape)) if data.shape else scalar
    return tl.tensor(TensorHandle(data if data.shape else data.reshape(1), scalar), kind)


def extract_slice(
    ful: tl.tensor, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], **_: Any
) -> tl.tensor:
    """The part of a block that starts at offsets and holds sizes elements, strides apart."""
    return _tensor(ful.handle.data[_region(offsets, sizes, strides)].copy(), ful)


def insert_slice(
    ful: tl.tensor, sub: tl.tensor, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], **_: Any
) -> tl.tensor:
    """The block with that part replaced by sub."""
    data = ful.handle.data.copy()
    data[_region(offsets, sizes, strides)] = sub.handle.data.reshape(_numbers(sizes))
    return _tensor(data, ful)


def get_element(src: tl.tensor, indice: Sequence[Any], **_: Any) -> tl.tensor:
    """One element of a block, as a scalar."""
    return _tensor(src.handle.data[tuple(_numbers(indice))], src)


def _arange(semantic: Any, start: int, end: int, *, ret_ty: tl.block_type | None = None) -> tl.tensor:
    """start, start + 1, … end - 1. Upstream's own, less its demand that the length be a power of two."""
    if not isinstance(start, int) or not isinstance(end, int):
        raise ValueError("arange's arguments must be of type tl.constexpr")
    if end <= start:
        raise ValueError("arange's end argument must be greater than the start argument")
    kind = ret_ty or tl.block_type(tl.int32, [end - start])
    return semantic.make_tensor(semantic.builder.create_make_range(kind.to_ir(semantic.builder), start, end), kind)


def _validate_block_shape(shape: Sequence[int]) -> int:
    """The number of elements of a block; any positive lengths do."""
    for length in shape:
        if not isinstance(length, int):
            raise TypeError(f"a block's shape must be of type constexpr[int], got {list(shape)}")
    return math.prod(shape)


def _allow_any_length() -> None:
    """Let blocks have lengths that are no power of two, as triton-ascend does and kernels for Ascend use."""
    semantic.TritonSemantic.arange = _arange
    for module in (triton._utils, core):
        module.validate_block_shape = _validate_block_shape


def install() -> None:
    """Make `triton.language.extra.cann` and `.extension` importable, and lift the limits of upstream's language."""
    if CANN in sys.modules:
        return
    _allow_any_length()
    cann, extension = ModuleType(CANN), ModuleType(f"{CANN}.extension")
    for function in (extract_slice, insert_slice, get_element):
        setattr(extension, function.__name__, function)
    cann.__path__ = []
    cann.extension, cann.libdevice = extension, libdevice  # type: ignore[attr-defined]
    for module in (cann, extension):
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=True)
        sys.modules[module.__name__] = module
    extra.cann = cann
