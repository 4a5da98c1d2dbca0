"""What is going on with graphs in this process: counters, the capture, the replay that waits, the update under way."""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_npu import _native

if TYPE_CHECKING:
    from torch_npu.graph.npu_graph import NPUGraph
    from torch_npu.graph.tasks import TaskGroupHandle


@dataclass(slots=True)
class Statistics:
    """Counts since the process started, for tests that want to know that graphs were at work at all."""

    captures: int = 0
    nodes: int = 0
    replays: int = 0
    waits: int = 0
    updates: int = 0


class _PerThread(threading.local):
    capture: "NPUGraph | None" = None
    update: "TaskGroupHandle | None" = None


statistics = Statistics()
per_thread = _PerThread()
waiting: "NPUGraph | None" = None  # the replay that holds the queue until an external event is recorded


def set_waiting(graph: "NPUGraph | None") -> None:
    global waiting
    waiting = graph
    _native.set_queue_waiting(graph is not None)


def recording_graph() -> "NPUGraph | None":
    """The graph that records what is issued now. None outside capture, in a device call, on a stream of no capture."""
    return per_thread.capture if _native.is_recording() else None
