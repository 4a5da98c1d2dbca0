"""Streams and events: nothing overlaps here, so what is left of them is identity, bookkeeping and time."""

import time

import pytest
import torch

import torch_npu


def test_the_current_stream_is_per_device_and_restored():
    side = torch.npu.Stream(device="npu:1")
    assert torch.npu.current_stream() == torch.npu.default_stream()
    with torch.npu.stream(side):
        assert torch.npu.current_stream() == side
        assert torch.npu.current_device() == 1
        assert torch.npu.current_stream(0) == torch.npu.default_stream(0)
    assert torch.npu.current_stream() == torch.npu.default_stream()
    assert torch.npu.current_device() == 0
    assert torch.npu.current_stream(1) == torch.npu.default_stream(1)


def test_streams_are_told_apart():
    a, b = torch.npu.Stream(), torch.npu.Stream()
    assert a != b
    assert a.npu_stream != b.npu_stream
    assert a.device == torch.device("npu:0")
    torch.npu.set_stream(a)
    assert torch.accelerator.current_stream() == a


def test_no_stream_changes_nothing():
    with torch.npu.stream(None):
        assert torch.npu.current_stream() == torch.npu.default_stream()


def test_an_event_is_over_when_recorded_and_measures_time():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    time.sleep(0.01)
    torch.npu.current_stream().record_event(end)
    end.synchronize()
    assert end.query()
    assert 9 < start.elapsed_time(end) < 1000


def test_time_needs_events_made_for_it():
    with pytest.raises(ValueError, match="enable_timing"):
        torch.npu.Event().elapsed_time(torch.npu.Event(enable_timing=True))
    with pytest.raises(ValueError, match="recorded"):
        torch.npu.Event(enable_timing=True).elapsed_time(torch.npu.Event(enable_timing=True))


def test_an_external_event_outside_a_graph_must_be_recorded_first():
    event = torch.npu.ExternalEvent()
    with pytest.raises(RuntimeError, match="never returns"):
        event.wait()
    event.record()
    event.wait()
    event.reset()
    with pytest.raises(RuntimeError, match="never returns"):
        event.wait()


def test_the_native_way_to_set_a_stream_does_the_same() -> None:
    before, stream = torch.npu.current_stream(), torch.npu.Stream()
    torch_npu._C._npu_setStream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=20)
    assert torch.npu.current_stream() == stream
    torch.npu.set_stream(before)
    assert torch.npu.current_stream() == before
