"""Counts what makes the host wait for the device, and what copies whole logits, while a piece of code runs.

On hardware each read stops the host until the device has done all work issued before. The emulator works at once and
so hides that; here every operator is looked at as it is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MASKS = (torch.bool, torch.uint8)
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


class DeviceReads(TorchDispatchMode):
    """Within it, operators are counted by name.

    reads: those that bring device memory to the host, or whose result has a size that only the device knows.
    wide: those that make an fp32 tensor of at least `wide_from` elements on the device (0: not counted).
    """

    def __init__(self, wide_from: int = 0) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.wide: Counter[str] = Counter()
        self._wide_from = wide_from

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self:  # inference mode hands in operators that are made of others, which are what counts
            parts = func.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if _reads(func, name, args, kwargs or {}, result):
            self.reads[name] += 1
        if self._wide_from and not func.is_view:
            self.wide[name] += sum(_is_wide(tensor, self._wide_from) for tensor in _tensors(result))
            self.wide += Counter()  # drops zeros
        return result


def _reads(func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    given = list(_tensors((args, kwargs)))
    if not any(_on_device(tensor) for tensor in given):
        return False
    if name in _INDEXING:  # tagged whatever the index is; only a mask is turned into places
        return any(_on_device(index) and index.dtype in _MASKS for index in _tensors(args[1]))
    if name == "_local_scalar_dense" or _unknown_size(func, kwargs):
        return True
    if name in ("copy_", "_copy_from", "_copy_from_and_resize"):
        source, target = (args[1], args[0]) if name == "copy_" else (args[0], args[1])
        return _on_device(source) and not _on_device(target)
    return name == "_to_copy" and any(not _on_device(tensor) for tensor in _tensors(result))


def _unknown_size(func: Any, kwargs: Mapping[str, Any]) -> bool:
    return torch.Tag.dynamic_output_shape in func.tags and kwargs.get("output_size") is None


def _is_wide(tensor: torch.Tensor, elements: int) -> bool:
    return _on_device(tensor) and tensor.dtype == torch.float32 and tensor.numel() >= elements


def _on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "npu"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
