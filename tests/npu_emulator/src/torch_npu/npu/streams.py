"""torch.npu: streams and events.

Work is done when it is issued, on whatever stream, so streams order nothing and races between them do not show. What
does show: work on a stream that is not part of a capture is not recorded, and nothing may wait for a device that waits.
"""

import time
from typing import Any

import torch

from torch_npu import _native
from torch_npu.graph import state
from torch_npu.npu.devices import Device, index_of


class Stream(torch.Stream):
    """A stream of an npu device."""

    def __new__(cls, device: Device = None, priority: int = 0, **ids: Any) -> "Stream":
        if ids:
            return super().__new__(cls, **ids)
        return super().__new__(cls, device=f"npu:{index_of(device)}", priority=priority)

    @property
    def npu_stream(self) -> int:
        """The number of the stream; there is no handle that native code could use."""
        return self.stream_id

    def synchronize(self) -> None:
        _native.check_synchronise("Stream.synchronize")

    def query(self) -> bool:
        return not _native.queue_is_waiting()

    def record_event(self, event: "Event | None" = None) -> "Event":  # type: ignore[override]
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:  # type: ignore[override]
        event.wait(self)

    def wait_stream(self, stream: "Stream") -> None:  # type: ignore[override]
        self.wait_event(stream.record_event())


class Event:
    """An event of a stream. Times are of this host and say nothing about an NPU."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if interprocess or external:
            raise NotImplementedError(
                "torch.npu.Event: interprocess and external are not emulated (torch.npu.ExternalEvent is)"
            )
        self._timed = enable_timing
        self._time: float | None = None
        self._behind: Any = None  # a replay that waits, after which the event comes
        self._capture: Any = None  # the capture in which it was recorded

    def record(self, stream: Any = None) -> None:
        stream = stream or current_stream()
        capture = state.per_thread.capture
        self._capture = capture if capture is not None and capture.covers(stream.stream_id) else None
        self._behind = state.waiting
        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """During capture, make `stream` part of it if the event is."""
        capture = state.per_thread.capture
        if capture is not None and self._capture is capture:
            capture.join((stream or current_stream()).stream_id)

    def synchronize(self) -> None:
        if self._capture is not None and self._capture is state.per_thread.capture:
            _native.check_synchronise("Event.synchronize")
        if self._is_behind() or _native.is_capturing():
            _native.check_synchronise("Event.synchronize")

    def query(self) -> bool:
        return not self._is_behind()

    def _is_behind(self) -> bool:
        return self._behind is not None and self._behind is state.waiting

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to `end_event`. Both must have been made with enable_timing and recorded."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


def _stream(device: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=device, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def current_stream(device: Device = None) -> Stream:
    index = index_of(device)
    return _stream(index, _native.current_stream(index))


def default_stream(device: Device = None) -> Stream:
    return _stream(index_of(device), 0)


def set_stream(stream: Any) -> None:
    """Make a stream current on its device, and its device current."""
    if stream is None:
        return
    _native.set_device(stream.device.index)
    _native.set_stream(stream.device.index, stream.stream_id)


class StreamContext:
    """Context manager that makes a stream current; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._device = 0
        self._previous: Stream | None = None

    def __enter__(self) -> Any:
        if self.stream is not None:
            self._device = _native.current_device()
            self._previous = current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *error: Any) -> None:
        if self._previous is not None:
            set_stream(self._previous)
            _native.set_device(self._device)


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)
