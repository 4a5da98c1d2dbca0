"""External events: a graph waits inside its replay for something that the host does outside of it."""

from typing import Any

from torch_npu import _native
from torch_npu.graph import state


class _Wait:
    name = "external event: wait"

    def __init__(self, event: "ExternalEvent") -> None:
        self.event = event

    def run(self) -> bool:
        return self.event.is_recorded


class _Reset:
    name = "external event: reset"

    def __init__(self, event: "ExternalEvent") -> None:
        self.event = event

    def run(self) -> None:
        self.event.is_recorded = False


class ExternalEvent:
    """An event whose waits are part of a graph and whose record comes from outside."""

    def __init__(self) -> None:
        self.is_recorded = False
        self.waiter: Any = None  # the graph whose replay waits for it

    def wait(self, stream: Any = None) -> None:
        graph = state.recording_graph()
        if graph is not None:
            graph.add_call(_Wait(self))
        elif not self.is_recorded:
            raise RuntimeError(
                "emulated NPU: waiting for an external event that was not recorded, outside a graph, never returns"
            )

    def reset(self, stream: Any = None) -> None:
        graph = state.recording_graph()
        if graph is not None:
            graph.add_call(_Reset(self))
        else:
            self.is_recorded = False

    def record(self, stream: Any = None) -> None:
        if _native.is_capturing():
            raise NotImplementedError("recording an ExternalEvent during graph capture is not emulated")
        self.is_recorded = True
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.go_on()
