"""Device operations implemented in Python: one node of a graph each, whatever they do inside."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from torch_npu import _native
from torch_npu.graph import state

Implementation = Callable[..., Any]


def is_device_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


def watched(values: Any) -> Any:
    """The same arguments with device tensors that do not keep their memory: a graph holds addresses, not tensors."""
    return tree_map(lambda value: _native.watched(value) if is_device_tensor(value) else value, values)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Call:
    """One recorded operation: what to call, with what, and where its results belong."""

    __slots__ = ("args", "implementation", "kwargs", "name", "results")

    def __init__(
        self, name: str, implementation: Implementation, args: Any, kwargs: Any, results: dict[int, torch.Tensor]
    ):
        self.name = name
        self.implementation = implementation
        self.args, self.kwargs = watched((args, kwargs))
        self.results = {place: _native.watched(tensor) for place, tensor in results.items()}

    def update(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = watched((args, kwargs))

    def run(self) -> None:
        values = run_as_one(self.implementation, self.args, self.kwargs)
        if self.results:
            leaves = tree_flatten(values)[0]
            for place, target in self.results.items():
                target.copy_(leaves[place])


def run_as_one(implementation: Implementation, args: Any, kwargs: Any) -> Any:
    """Call `implementation`; what it issues is part of it, not recorded by itself, and it may read device memory."""
    _native.enter_device_call()
    try:
        return implementation(*args, **kwargs)
    finally:
        _native.leave_device_call()


def dispatch(name: str, implementation: Implementation, args: Any, kwargs: Any) -> Any:
    """Issue a device operation: run it; in a capture record it too; in an update replace a recorded one's arguments."""
    if state.per_thread.update is not None:
        state.per_thread.update.replace(name, args, kwargs)
        return kwargs.get("out")
    _native.check_queue(name)
    graph = state.recording_graph()
    if graph is None:
        return run_as_one(implementation, args, kwargs)
    inputs = {_storage(value) for value in tree_flatten((args, kwargs))[0] if is_device_tensor(value)}
    values, spec = torch.utils._pytree.tree_flatten(run_as_one(implementation, args, kwargs))
    results = {}
    for place, value in enumerate(values):
        if is_device_tensor(value) and value.numel() and _storage(value) not in inputs:
            values[place] = results[place] = _in_graph_memory(value)
    graph.add_call(Call(name, implementation, args, kwargs, results))
    return torch.utils._pytree.tree_unflatten(values, spec)


def _in_graph_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of the graph's pool, which replays write to."""
    _native.enter_device_call()  # copying is not a node
    try:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
            tensor
        )
    finally:
        _native.leave_device_call()


def device_call(name: str) -> Callable[[Implementation], Implementation]:
    """Decorator: the function is one operation of the device, named `name` in graphs and errors."""

    def decorate(implementation: Implementation) -> Implementation:
        @wraps(implementation)
        def call(*args: Any, **kwargs: Any) -> Any:
            return dispatch(name, implementation, args, kwargs)

        return call

    return decorate
