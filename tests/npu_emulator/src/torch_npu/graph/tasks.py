"""Task groups: operations of a graph whose arguments are replaced between replays, as attention's lengths are."""

from typing import Any

from torch_npu.graph import state
from torch_npu.graph.calls import Call


class TaskGroupHandle:
    """The operations between graph_task_group_begin and graph_task_group_end of a capture."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def replace(self, name: str, args: Any, kwargs: Any) -> None:
        """Give the next operation of the group new arguments; they hold from the next time that it runs."""
        if self._next == len(self._calls):
            raise RuntimeError(
                f"emulated NPU: task update issues {name}, but its group has {len(self._calls)} operations"
            )
        call = self._calls[self._next]
        if call.name != name:
            raise RuntimeError(f"emulated NPU: task update issues {name} where {call.name} was captured")
        call.update(args, kwargs)
        self._next += 1
        state.statistics.updates += 1

    def finish(self) -> None:
        if self._next != len(self._calls):
            raise RuntimeError(f"emulated NPU: task update ended after {self._next} of {len(self._calls)} operations")


def graph_task_group_begin(stream: Any) -> None:
    _capturing("graph_task_group_begin").begin_group()


def graph_task_group_end(stream: Any) -> TaskGroupHandle:
    return TaskGroupHandle(_capturing("graph_task_group_end").end_group())


def graph_task_update_begin(stream: Any, handle: TaskGroupHandle) -> None:
    """From here to graph_task_update_end operations are not run: they replace those of the group."""
    if state.per_thread.update is not None:
        raise RuntimeError("emulated NPU: a task update is under way in this thread")
    handle.begin()
    state.per_thread.update = handle


def graph_task_update_end(stream: Any) -> None:
    handle, state.per_thread.update = state.per_thread.update, None
    if handle is None:
        raise RuntimeError("emulated NPU: graph_task_update_end without graph_task_update_begin")
    handle.finish()


def _capturing(what: str) -> Any:
    if state.per_thread.capture is None:
        raise RuntimeError(f"emulated NPU: {what} outside a graph capture")
    return state.per_thread.capture
