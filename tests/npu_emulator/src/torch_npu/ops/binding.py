"""How an operator written in plain torch becomes an operator of the `npu` device.

An implementation receives host tensors that share memory with the device tensors of the caller, so it may write into
them, and returns host tensors, which are handed back as device tensors without a copy.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from torch_npu.graph import device_call

Implementation = Callable[..., Any]


def host(value: Any) -> Any:
    """The same value with every `npu` tensor in it replaced by a host tensor over the same memory."""
    if isinstance(value, Tensor):
        return torch.ops.npu_emu.cpu_alias(value) if value.device.type == "npu" else value
    if isinstance(value, (list, tuple)):
        return type(value)(host(item) for item in value)
    return value


def on_device(value: Any) -> Any:
    """The same value with every host tensor in it replaced by an `npu` tensor over the same memory."""
    if isinstance(value, Tensor):
        return torch.ops.npu_emu.npu_alias(value) if value.device.type == "cpu" else value
    if isinstance(value, (list, tuple)):
        return type(value)(on_device(item) for item in value)
    return value


def device_kernel(implementation: Implementation) -> Implementation:
    """Wrap a host implementation as a kernel that takes and returns `npu` tensors."""

    @wraps(implementation)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return on_device(implementation(*map(host, args), **{name: host(value) for name, value in kwargs.items()}))

    return kernel


def not_emulated(name: str) -> Implementation:
    """A stand-in that names the operator which nobody has written for this emulator."""

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} is not emulated; add it to torch_npu.ops (docs/emulated-npu.md tells how)")

    missing.__name__ = missing.__qualname__ = name.rpartition(".")[2]
    missing.out = missing  # type: ignore[attr-defined]
    missing.default = missing  # type: ignore[attr-defined]
    return missing


class Namespace:
    """The operators of one `torch.ops` namespace and the names under which `torch_npu` shows them."""

    def __init__(self, name: str) -> None:
        self.library = torch.library.Library(name, "FRAGMENT")
        self.name = name
        self.exported: dict[str, Implementation] = {}

    def operator(self, schema: str, meta: Implementation | None = None) -> Callable[[Implementation], Implementation]:
        """Register an operator of `torch.ops` with its real schema.

        `meta` computes the shapes and dtypes of the results for tracing; without it the implementation itself runs on
        meta tensors, which is right when it does not look at values.
        """
        name = schema.partition("(")[0]

        def register(implementation: Implementation) -> Implementation:
            self.library.define(schema)
            self.library.impl(name, device_call(f"{self.name}::{name}")(device_kernel(implementation)), "PrivateUse1")
            self.library.impl(name, meta or implementation, "Meta")
            self.exported[name] = getattr(getattr(torch.ops, self.name), name)
            return implementation

        return register

    def call(self, name: str) -> Callable[[Implementation], Implementation]:
        """Register a function that only `torch_npu` shows: one device call that writes its results into arguments."""

        def register(implementation: Implementation) -> Implementation:
            self.exported[name] = device_call(name)(device_kernel(implementation))
            return implementation

        return register

    def function(self, implementation: Implementation) -> Implementation:
        """Export a function that launches nothing on the device."""
        self.exported[implementation.__name__] = implementation
        return implementation


npu = Namespace("npu")


class OverloadedCall:
    """An operator of `torch.ops` with an `out` form, which graph mode calls and whose arguments it may update."""

    def __init__(self, packet: Any, out: Implementation) -> None:
        self._packet = packet
        self.default = packet.default
        self.out = out

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._packet(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packet, name)
