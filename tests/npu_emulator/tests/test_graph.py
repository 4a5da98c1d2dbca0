"""Capture and replay: what a graph repeats, what it does not, and what it refuses."""

import pytest
import torch

import torch_npu.graph
from torch_npu.graph import device_call


def capture(function, **options):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


def test_replay_reads_and_writes_the_same_memory():
    x = torch.zeros(4, device="npu")
    graph, y = capture(lambda: (x * 2).view(2, 2) + 1)
    address = y.data_ptr()
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert y.data_ptr() == address
        assert y.flatten().tolist() == [2 * value + 1] * 4


def test_python_side_effects_are_not_repeated():
    x, calls = torch.zeros(2, device="npu"), []
    graph, _ = capture(lambda: (calls.append(1), x.add_(1)))
    x.zero_()
    graph.replay()
    graph.replay()
    assert calls == [1]
    assert x.tolist() == [2, 2]


def test_a_value_baked_in_at_capture_stays():
    """The known bug of graph mode: a number of Python or the host is read once, a device tensor at each replay."""
    x, step = (
        torch.zeros(2, device="npu"),
        {"number": 1, "host": torch.tensor(1.0), "device": torch.ones(1, device="npu")},
    )
    graph, (number, host, device) = capture(lambda: [x + step[kind] for kind in step])
    step["number"] = 5
    step["host"].fill_(5)
    step["device"].fill_(5)
    graph.replay()
    assert number.tolist() == [1, 1]
    assert host.tolist() == [1, 1]
    assert device.tolist() == [5, 5]


def test_a_lost_write_shows():
    """Negative control: without one of its operators the graph gives other numbers."""
    cache, slot, row = torch.zeros(4, 2, device="npu"), torch.tensor([2], device="npu"), torch.ones(1, 2, device="npu")

    def attend():
        cache.index_copy_(0, slot, row)
        return cache.sum(0)

    complete, total = capture(attend)
    lossy, lossy_total = capture(lambda: cache.sum(0))
    assert len(complete.operations()) == len(lossy.operations()) + 1
    slot.fill_(3)
    cache.zero_()
    complete.replay()
    assert total.tolist() == [1, 1]
    assert cache[3].tolist() == [1, 1]
    cache.zero_()
    lossy.replay()
    assert lossy_total.tolist() == [0, 0]


def test_operators_with_lists_and_several_results():
    x = torch.tensor([[3.0, 1.0, 2.0]], device="npu")
    graph, (values, indices, parts, both) = capture(
        lambda: (*torch.topk(x, 2), torch.unbind(x * 1, 1), torch.cat((x, x + 1), dim=1))
    )
    x.copy_(torch.tensor([[5.0, 7.0, 6.0]]))
    graph.replay()
    assert values.tolist() == [[7, 6]]
    assert indices.tolist() == [[1, 2]]
    assert [p.item() for p in parts] == [5, 7, 6]
    assert both.tolist() == [[5, 7, 6, 6, 8, 7]]


def test_random_numbers_are_drawn_anew():
    graph, (x, y) = capture(
        lambda: (torch.rand(4, device="npu"), torch.nn.functional.dropout(torch.ones(64, device="npu")))
    )
    torch.npu.manual_seed(1)
    graph.replay()
    first = x.tolist(), y.tolist()
    graph.replay()
    assert x.tolist() != first[0]
    assert y.tolist() != first[1]
    torch.npu.manual_seed(1)
    graph.replay()
    assert (x.tolist(), y.tolist()) == first


def test_a_device_call_is_one_node_and_may_read_device_memory():
    @device_call("double_first")
    def double_first(x, out=None):
        host = torch.ops.npu_emu.cpu_alias(x)
        result = torch.full((2,), host[0].item() * 2)
        return torch.ops.npu_emu.npu_alias(result)

    x = torch.ones(3, device="npu")
    graph, y = capture(lambda: double_first(x) + 1)
    assert graph.operations() == ["double_first", "aten::add"]
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [9, 9]


def test_operators_of_torch_npu_are_one_node_each():
    import torch_npu

    x, weight = torch.randn(2, 8, device="npu"), torch.ones(8, device="npu")
    graph, (y, _) = capture(lambda: torch_npu.npu_rms_norm(x, weight, 1e-6))
    assert graph.operations() == ["npu::npu_rms_norm"]
    x.copy_(torch.randn(2, 8))
    graph.replay()
    torch.testing.assert_close(y, torch_npu.npu_rms_norm(x, weight, 1e-6)[0])


def test_inference_mode_captures_and_replays():
    with torch.inference_mode():
        x = torch.zeros(2, device="npu")
        graph, y = capture(lambda: x + 1)
    x.data.fill_(1)
    graph.replay()
    assert y.tolist() == [2, 2]


def test_pinned_memory_is_copied_at_each_replay():
    source, target = torch.zeros(2).pin_memory(), torch.empty(2).pin_memory()
    x = torch.empty(2, device="npu")

    def through():
        x.copy_(source, non_blocking=True)
        x.mul_(2)
        target.copy_(x, non_blocking=True)

    graph, _ = capture(through)
    source.fill_(4)
    graph.replay()
    assert target.tolist() == [8, 8]


X = torch.ones(3, device="npu")
REFUSED = {
    "item": lambda: X.sum().item(),
    "tolist": lambda: X.tolist(),
    "bool": lambda: bool(X[0] > 0),
    "cpu": lambda: X.cpu(),
    "nonzero": lambda: X.nonzero(),
    "mask": lambda: X[X > 0],
    "unique": lambda: X.unique(),
    "equal": lambda: torch.equal(X, X),
    "repeat_interleave": lambda: X.repeat_interleave(X.long()),
    "host index": lambda: X[torch.tensor([0])],
    "pageable copy": lambda: X.copy_(torch.ones(3)),
    "new from host": lambda: torch.tensor([1, 2], device="npu"),
    "device synchronize": lambda: torch.npu.synchronize(),
    "accelerator synchronize": lambda: torch.accelerator.synchronize(),
    "stream synchronize": lambda: torch.npu.current_stream().synchronize(),
    "event synchronize": lambda: torch.npu.current_stream().record_event().synchronize(),
    "host access": lambda: torch.ops.npu_emu.cpu_alias(X),
}


@pytest.mark.parametrize("what", REFUSED)
def test_waiting_for_the_device_during_capture_is_refused(what):
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="during graph capture"), torch.npu.graph(graph):
        REFUSED[what]()
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="no successful capture"):
        graph.replay()


def test_captures_do_not_nest():
    with pytest.raises(RuntimeError, match="do not nest"), torch.npu.graph(torch.npu.NPUGraph()):
        torch.npu.NPUGraph().capture_begin()


def test_the_default_stream_cannot_be_captured():
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.npu.NPUGraph().capture_begin()


def test_replay_needs_a_capture_and_no_capture_under_way():
    with pytest.raises(RuntimeError, match="no successful capture"):
        torch.npu.NPUGraph().replay()
    graph, _ = capture(lambda: X + 1)
    with (
        pytest.raises(RuntimeError, match="cannot be replayed during graph capture"),
        torch.npu.graph(torch.npu.NPUGraph()),
    ):
        graph.replay()


def test_a_graph_holds_one_capture_until_it_is_reset():
    x = torch.zeros(1, device="npu")
    graph, _ = capture(lambda: x.add_(1))
    with pytest.raises(RuntimeError, match="reset"), torch.npu.graph(graph):
        pass
    graph.reset()
    with torch.npu.graph(graph):
        x.add_(10)
    x.zero_()
    graph.replay()
    assert x.tolist() == [10]


def test_work_on_a_stream_outside_the_capture_is_not_recorded():
    x, y = torch.zeros(1, device="npu"), torch.zeros(1, device="npu")
    apart, joined = torch.npu.Stream(), torch.npu.Stream()

    def on_three_streams():
        main = torch.npu.current_stream()
        joined.wait_stream(main)
        with torch.npu.stream(joined):
            assert torch.npu.is_current_stream_capturing()
            x.add_(1)
        main.wait_stream(joined)
        with torch.npu.stream(apart):
            assert not torch.npu.is_current_stream_capturing()
            y.add_(1)

    graph, _ = capture(on_three_streams)
    graph.replay()
    assert x.tolist() == [2]
    assert y.tolist() == [1]


def test_another_thread_is_not_captured():
    import threading

    x = torch.zeros(1, device="npu")

    def count():
        thread = threading.Thread(target=lambda: x.add_(1).item())
        thread.start()
        thread.join()

    graph, _ = capture(count)
    assert graph.operations() == []


def test_a_triton_launch_is_recorded():
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def add_one(pointer, n, block: tl.constexpr):
        offsets = tl.arange(0, block)
        tl.store(pointer + offsets, tl.load(pointer + offsets, mask=offsets < n) + 1, mask=offsets < n)

    x = torch.zeros(3, device="npu")
    graph, _ = capture(lambda: add_one[(1,)](x, 3, block=4))
    assert graph.operations() == ["triton:add_one"]
    x.fill_(5)
    graph.replay()
    assert x.tolist() == [6, 6, 6]


def test_statistics_count():
    before = (torch_npu.graph.statistics.captures, torch_npu.graph.statistics.replays)
    graph, _ = capture(lambda: X + 1)
    graph.replay()
    assert (torch_npu.graph.statistics.captures - before[0], torch_npu.graph.statistics.replays - before[1]) == (1, 1)


def test_what_graphs_do_not_do_names_itself():
    for call, name in (
        (lambda: torch.npu.make_graphed_callables(None, ()), "make_graphed_callables"),
        (lambda: torch.npu.NPUGraph().update([]), "NPUGraph.update"),
        (lambda: torch.npu.graph(torch.npu.NPUGraph(), auto_dispatch_capture=True), "auto_dispatch_capture"),
    ):
        with pytest.raises(NotImplementedError, match=name):
            call()
