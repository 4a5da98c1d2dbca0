"""Memory of graphs: addresses are reused within a pool, and memory that was let go of shows when it is read."""

import gc

import pytest
import torch

from torch_npu._C import _weak_ref_tensor


def capture(function, **options):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


def is_poisoned(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point():
        return bool(tensor.isnan().all())
    return bool((tensor > torch.iinfo(tensor.dtype).max // 2).all())


@pytest.mark.parametrize("release", ["reset", "delete"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64])
def test_memory_of_a_released_graph_is_poisoned(release, dtype):
    x = torch.ones(5, device="npu", dtype=dtype)
    graph, y = capture(lambda: x + 1)
    graph.replay()
    assert y.tolist() == [2] * 5
    assert not is_poisoned(y)
    if release == "reset":
        graph.reset()
    else:
        del graph
        gc.collect()
    assert is_poisoned(y)
    assert x.tolist() == [1] * 5


def test_poison_is_no_token_of_any_vocabulary():
    graph, token = capture(lambda: torch.zeros(3, dtype=torch.int32, device="npu"))
    graph.reset()
    assert token.min().item() > 10**9


def test_a_weak_reference_sees_the_graphs_results_and_then_poison():
    x = torch.ones(3, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = _weak_ref_tensor(x + 1)
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5, 5, 5]
    graph.reset()
    assert is_poisoned(y)


def test_a_weak_reference_does_not_keep_memory():
    x = torch.ones(3, device="npu")
    weak = _weak_ref_tensor(x)
    x.fill_(2)
    assert weak.tolist() == [2, 2, 2]
    assert weak.data_ptr() == x.data_ptr()
    before = torch.npu.memory_allocated()
    del x
    assert torch.npu.memory_allocated() == before - 512
    assert is_poisoned(weak)
    reserved = torch.npu.memory_reserved()
    del weak
    assert torch.npu.memory_reserved() == reserved - 512


def test_an_input_that_nobody_keeps_is_use_after_free():
    """A graph holds addresses. An input that only the capture's caller held is gone when the caller is."""
    inputs = [torch.ones(3, device="npu")]
    graph, y = capture(lambda: inputs[0] + 1)
    graph.replay()
    assert y.tolist() == [2, 2, 2]
    inputs.clear()
    graph.replay()
    assert is_poisoned(y)


def test_intermediate_memory_is_reused_within_a_capture():
    x = torch.ones(1000, device="npu")

    def chain():
        y = x
        for _ in range(10):
            y = y + 1
        return y

    before = torch.npu.memory_reserved()
    graph, y = capture(chain)
    assert torch.npu.memory_reserved() - before <= 3 * 4096  # two buffers that take turns and a spare one, not ten
    x.fill_(5)
    graph.replay()
    assert y[0].item() == 15


def test_a_result_that_nobody_kept_is_overwritten_by_another_graph_of_the_pool():
    """Valid only until the next graph of the pool runs, as on hardware: reading it later gives wrong numbers."""
    x, pool = torch.ones(4, device="npu"), torch.npu.graph_pool_handle()
    first = torch.npu.NPUGraph()
    with torch.npu.graph(first, pool=pool):
        y = _weak_ref_tensor(x + x)
    hundred = torch.full((4,), 100.0, device="npu")
    second, z = capture(lambda: x * hundred, pool=pool)
    assert z.data_ptr() == y.data_ptr()
    first.replay()
    assert y.tolist() == [2] * 4
    second.replay()
    assert y.tolist() == [100] * 4


def test_results_that_are_kept_are_not_reused():
    x, pool = torch.ones(4, device="npu"), torch.npu.graph_pool_handle()
    first, y = capture(lambda: x + 1, pool=pool)
    second, z = capture(lambda: x * 100, pool=first.pool())
    assert z.data_ptr() != y.data_ptr()
    assert second.pool() == pool
    first.replay(), second.replay()
    assert y.tolist() == [2] * 4
    assert z.tolist() == [100] * 4
    first.reset()
    second.replay()
    assert is_poisoned(y)
    assert z.tolist() == [100] * 4


def test_pool_memory_goes_back_with_the_last_graph():
    x, pool, before = torch.ones(10_000, device="npu"), torch.npu.graph_pool_handle(), torch.npu.memory_reserved()
    graphs = []
    for _ in range(2):
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, pool=pool):
            (x + 1).sum()
        graphs.append(graph)
    grown = torch.npu.memory_reserved()
    assert grown > before
    graphs.pop().reset()
    assert torch.npu.memory_reserved() == grown
    graphs.pop().reset()
    assert torch.npu.memory_reserved() - before <= 40_448
    assert torch.npu.memory_reserved() < grown


def test_two_graphs_without_a_pool_share_nothing():
    x = torch.ones(2, device="npu")
    first, _ = capture(lambda: x + 1)
    second, _ = capture(lambda: x + 1)
    assert first.pool() != second.pool()
