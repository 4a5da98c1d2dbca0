"""NPUGraph: capture keeps the operations that were issued, replay issues them again into the same memory.

There is one device queue. `replay` runs the recorded operations until it meets a wait for an external event that has
not been recorded; it stays there, as on the device, and recording the event lets it go on. Until then everything else
is refused: on the device it would run after the replay.
"""

import sys
from types import TracebackType
from typing import Any

import torch

from torch_npu import _native
from torch_npu.graph import state
from torch_npu.graph.calls import Call

PoolHandle = tuple[int, int]


def graph_pool_handle() -> PoolHandle:
    """A new pool of memory that graphs can share."""
    return (0, _native.new_pool())


class NPUGraph:
    """A captured sequence of device operations."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._recording: Any = None
        self._pool: PoolHandle | None = None
        self._foreign: dict[int, Any] = {}  # operations that Python runs, by their position
        self._groups: list[int] = []
        self._position: int | None = None  # where a replay waits
        self._failed = False

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.reset()

    def capture_begin(self, pool: PoolHandle | None = None, capture_error_mode: str = "global", **options: Any) -> None:
        """Start recording what this thread issues on the current stream, which must not be the default stream."""
        if options:
            raise NotImplementedError(f"NPUGraph.capture_begin: {', '.join(options)} not emulated")
        if state.per_thread.capture is not None:
            raise RuntimeError("emulated NPU: a capture is under way in this thread; captures do not nest")
        if self._recording is not None:
            raise RuntimeError("emulated NPU: this NPUGraph holds a capture already; reset() it first")
        _native.check_queue("capture_begin")
        stream = _native.current_stream(_native.current_device())
        if stream == 0:
            raise RuntimeError("NPU graphs must be captured on a non-default stream (torch.npu.graph switches to one)")
        self._pool = pool or graph_pool_handle()
        self._recording = _native.Recording(self._pool[1])
        self._recording.add_stream(stream)
        self._failed = False
        state.per_thread.capture = self
        _native.set_capturing(self._recording)

    def capture_end(self) -> None:
        """Stop recording. Unlike on hardware, the operations have also run once, so results hold their values."""
        if state.per_thread.capture is not self:
            raise RuntimeError("emulated NPU: capture_end of a graph that this thread does not capture")
        state.per_thread.capture = None
        _native.set_capturing(None)
        if self._groups:
            self._failed = True
            raise RuntimeError("emulated NPU: capture ended inside a task group; graph_task_group_end is missing")
        if _native.flag("TORCH_NPU_EMULATOR_POISON_CAPTURE", False):
            self._recording.poison_memory()
        state.statistics.captures += 1
        state.statistics.nodes += len(self._recording)

    def abandon(self) -> None:
        """End a capture that failed: what was recorded is never replayed."""
        state.per_thread.capture = None
        _native.set_capturing(None)
        self._failed = True

    def add_call(self, call: Any) -> None:
        self._foreign[self._recording.add_foreign()] = call

    def join(self, stream_id: int) -> None:
        """Make a stream part of the capture."""
        self._recording.add_stream(stream_id)

    def covers(self, stream_id: int) -> bool:
        return bool(self._recording.has_stream(stream_id))

    def begin_group(self) -> None:
        self._groups.append(len(self._recording))

    def end_group(self) -> list[Call]:
        if not self._groups:
            raise RuntimeError("emulated NPU: graph_task_group_end without graph_task_group_begin")
        start = self._groups.pop()
        return [call for place, call in sorted(self._foreign.items()) if place >= start and isinstance(call, Call)]

    def replay(self) -> None:
        """Issue the recorded operations again. Returns early when one of them waits for an external event."""
        if self._recording is None or self._failed:
            raise RuntimeError("emulated NPU: replay of a graph that holds no successful capture")
        if state.per_thread.capture is not None:
            raise RuntimeError("emulated NPU: a graph cannot be replayed during graph capture")
        _native.check_queue("NPUGraph.replay")
        state.statistics.replays += 1
        self._go_on(0)

    def go_on(self) -> None:
        """Go on with a replay that waited; called by the event."""
        position, self._position = self._position, None
        if position is not None:
            self._go_on(position)

    def _go_on(self, position: int) -> None:
        state.set_waiting(None)
        with torch.inference_mode():
            while (position := self._recording.run(position)) < len(self._recording):
                if self._foreign[position].run() is False:
                    self._position = position
                    state.statistics.waits += 1
                    self._foreign[position].event.waiter = self
                    state.set_waiting(self)
                    return
                position += 1

    def reset(self) -> None:
        """Release the graph. The memory of its capture is poisoned unless another graph of the pool uses it too."""
        if self._recording is None:
            return
        if state.per_thread.capture is self:
            self.abandon()
        if state.waiting is self:
            state.set_waiting(None)
        self._position = None
        self._foreign.clear()
        self._groups.clear()
        recording, self._recording = self._recording, None
        recording.release()

    def pool(self) -> PoolHandle:
        """Handle of the memory pool, for captures that shall share it."""
        if self._pool is None:
            raise RuntimeError("emulated NPU: an NPUGraph has no pool before its capture")
        return self._pool

    def operations(self) -> list[str]:
        """Names of the recorded operations in order, for tests."""
        names = self._recording.names()
        return [name or self._foreign[place].name for place, name in enumerate(names)]

    def update(self, cpu_update_input: Any) -> None:
        raise NotImplementedError(
            "NPUGraph.update is not emulated; task groups are (torch.npu.graph_task_update_begin)"
        )

    def debug_dump(self, debug_path: str) -> None:
        raise NotImplementedError("NPUGraph.debug_dump is not emulated; NPUGraph.operations lists what was recorded")

    def enable_debug_mode(self) -> None:
        """Nothing to do: the recorded operations are always there to be listed."""


def _npu() -> Any:
    """The torch.npu of now: it imports this module, and hosts replace functions of it."""
    return sys.modules["torch.npu"]


class graph:  # noqa: N801  (the name is torch_npu's)
    """Context manager: capture into `npu_graph` on `stream`, or on a stream of its own."""

    _stream: Any = None

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: PoolHandle | None = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        auto_dispatch_capture: bool = False,
        **options: Any,
    ) -> None:
        if auto_dispatch_capture:
            raise NotImplementedError("torch.npu.graph: auto_dispatch_capture is not emulated")
        self._graph, self._pool, self._mode, self._options = npu_graph, pool, capture_error_mode, options
        if stream is None:
            graph._stream = graph._stream or _npu().Stream()
            stream = graph._stream
        self._context = _npu().stream(stream)

    def __enter__(self) -> None:
        _npu().synchronize()
        _npu().empty_cache()
        self._context.__enter__()
        try:
            self._graph.capture_begin(self._pool, self._mode, **self._options)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._graph.capture_end() if kind is None else self._graph.abandon()
        finally:
            self._context.__exit__(kind, error, trace)


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("torch.npu.make_graphed_callables is not emulated; capture with torch.npu.graph")


def is_current_stream_capturing() -> bool:
    """Whether what is issued on the current stream is recorded."""
    capture = state.per_thread.capture
    return capture is not None and capture.covers(_native.current_stream(_native.current_device()))
