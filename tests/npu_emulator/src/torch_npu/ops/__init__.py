"""The operators of `torch_npu` in plain torch, one module per family."""

from collections.abc import Callable
from typing import Any

from torch_npu.ops import (  # noqa: F401  (importing a family registers its operators)
    activation,
    attention,
    fused_infer_attention,
    kv_cache,
    matmul,
    norm,
    quantisation,
    rotary,
    sampling,
    tensor_format,
)
from torch_npu.ops.binding import not_emulated, npu

__all__ = ["export", "missing"]


class NotEmulatedNamespace:
    """A part of torch_npu, such as `torch_npu.atb`, whose every function says that it is not emulated."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return not_emulated(f"{self._name}.{name}")


def export() -> dict[str, Any]:
    """The operators under the names that `torch_npu` shows."""
    return {**npu.exported, "atb": NotEmulatedNamespace("torch_npu.atb")}


def missing(name: str) -> Callable[..., Any]:
    """What `torch_npu.<name>` is for an operator that is not emulated; raises AttributeError for any other name."""
    if not name.startswith(("npu_", "_npu_")):
        raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")
    return not_emulated(f"torch_npu.{name}")
