"""Graphs that wait for the host: external events and task groups, as vLLM-Ascend updates attention's lengths."""

import pytest
import torch

import torch_npu.graph
from torch_npu.graph import device_call


@device_call("scaled")
def scaled(x, length, *, out):
    """Stands for attention: `length` is a number of the host, baked in unless the task is updated."""
    out.copy_(x * length)
    return out


class Layer:
    """One layer of a captured model: the task waits for an event, so that its argument can be set after the launch."""

    def __init__(self):
        self.x, self.out = torch.ones(2, device="npu"), torch.empty(2, device="npu")
        self.event, self.graph = torch.npu.ExternalEvent(), torch.npu.NPUGraph()
        with torch.npu.graph(self.graph):
            stream = torch.npu.current_stream()
            before = self.x + 1
            self.event.wait(stream)
            self.event.reset(stream)
            torch.npu.graph_task_group_begin(stream)
            scaled(before, 1, out=self.out)
            self.handle = torch.npu.graph_task_group_end(stream)
            self.result = self.out + 1

    def update(self, length):
        stream = torch.npu.current_stream()
        torch.npu.graph_task_update_begin(stream, self.handle)
        scaled(self.x, length, out=self.out)
        torch.npu.graph_task_update_end(stream)
        self.event.record(stream)


def test_an_update_after_the_launch_reaches_the_replay():
    layer = Layer()
    for length in (3, 5, 7):
        layer.graph.replay()
        layer.update(length)
        assert layer.result.tolist() == [length + 1] * 2


def test_an_update_before_the_launch_reaches_it_too():
    layer = Layer()
    layer.update(4)
    layer.graph.replay()
    assert layer.result.tolist() == [5, 5]


def test_an_ignored_update_gives_other_numbers():
    """Negative control: the event comes, the new argument does not, and the replay uses what was captured."""
    layer = Layer()
    layer.graph.replay()
    layer.event.record()
    assert layer.result.tolist() == [3, 3]  # (1 + 1) * 1 + 1, whatever the length should be


def test_an_event_that_is_never_recorded_is_refused_at_the_next_operator():
    layer = Layer()
    layer.graph.replay()
    for call in (
        lambda: layer.x + 1,
        lambda: layer.result.tolist(),
        lambda: layer.x.copy_(torch.ones(2)),
        lambda: scaled(layer.x, 1, out=layer.out),
        lambda: layer.graph.replay(),
        lambda: torch.npu.NPUGraph().capture_begin(),
    ):
        with pytest.raises(RuntimeError, match=r"waits for an external event|while a graph replay waits"):
            call()
    for wait in (
        torch.npu.synchronize,
        torch.npu.current_stream().synchronize,
        torch.npu.current_stream().record_event().synchronize,
    ):
        with pytest.raises(RuntimeError, match="would never return"):
            wait()
    assert not torch.npu.current_stream().query()
    layer.event.record()
    assert layer.result.tolist() == [3, 3]


def test_an_event_recorded_before_the_launch_is_over():
    layer, event = Layer(), torch.npu.Event()
    event.record()
    layer.graph.replay()
    event.synchronize()
    assert event.query()
    layer.event.record()


def test_a_second_replay_waits_again():
    layer = Layer()
    layer.graph.replay()
    layer.update(2)
    layer.graph.replay()
    with pytest.raises(RuntimeError, match="while a graph replay waits"):
        layer.x + 1
    layer.update(6)
    assert layer.result.tolist() == [7, 7]


def test_two_waits_in_one_graph():
    x, events, graph = torch.zeros(1, device="npu"), [torch.npu.ExternalEvent() for _ in range(2)], torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for event in events:
            event.wait()
            event.reset()
            x.add_(1)
    x.zero_()
    waits = torch_npu.graph.statistics.waits
    graph.replay()
    events[0].record()
    events[1].record()
    assert x.tolist() == [2]
    assert torch_npu.graph.statistics.waits - waits == 2


def test_an_update_must_issue_what_was_captured():
    layer = Layer()

    @device_call("another")
    def another(*, out):
        return out

    torch.npu.graph_task_update_begin(None, layer.handle)
    with pytest.raises(RuntimeError, match="issues another where scaled was captured"):
        another(out=layer.out)
    scaled(layer.x, 2, out=layer.out)
    with pytest.raises(RuntimeError, match="has 1 operations"):
        scaled(layer.x, 2, out=layer.out)
    torch.npu.graph_task_update_end(None)
    torch.npu.graph_task_update_begin(None, layer.handle)
    with pytest.raises(RuntimeError, match="after 0 of 1 operations"):
        torch.npu.graph_task_update_end(None)


def test_task_groups_belong_to_a_capture():
    with pytest.raises(RuntimeError, match="outside a graph capture"):
        torch.npu.graph_task_group_begin(None)
    with pytest.raises(RuntimeError, match="graph_task_group_end is missing"), torch.npu.graph(torch.npu.NPUGraph()):
        torch.npu.graph_task_group_begin(None)


def test_an_argument_of_an_update_that_nobody_keeps_is_use_after_free():
    layer = Layer()
    layer.graph.replay()
    torch.npu.graph_task_update_begin(None, layer.handle)
    scaled(torch.ops.npu_emu.npu_alias(torch.ones(2)), 2, out=layer.out)
    torch.npu.graph_task_update_end(None)
    layer.event.record()
    assert layer.result.isnan().all()


def test_resetting_a_graph_that_waits_frees_the_queue():
    layer = Layer()
    layer.graph.replay()
    layer.graph.reset()
    assert (layer.x + 1).tolist() == [2, 2]
