"""Memory statistics count what tensors hold."""

import os
import subprocess
import sys

import pytest
import torch

MIB = 1 << 20


def test_allocation_and_release_are_counted_per_device():
    before, other = torch.npu.memory_allocated(0), torch.npu.memory_allocated(1)
    x = torch.empty(MIB, dtype=torch.uint8, device="npu:0")
    y = x + 1  # memory of a result counts as well
    assert torch.npu.memory_allocated(0) - before == 2 * MIB
    assert torch.npu.memory_allocated(1) == other
    free, total = torch.npu.mem_get_info(0)
    assert total - free == torch.npu.memory_reserved(0) >= 2 * MIB
    del x, y
    assert torch.npu.memory_allocated(0) == before


def test_peak_is_kept_until_it_is_reset():
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="npu")
    del x
    assert torch.npu.max_memory_allocated() - torch.npu.memory_allocated() >= 4 * MIB
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == torch.npu.memory_allocated()
    assert torch.npu.memory_stats()["allocated_bytes.all.peak"] == torch.npu.memory_allocated()


def test_views_and_in_place_operators_take_no_memory():
    x = torch.ones(MIB, device="npu")
    y = torch.ones(2, device="npu")
    before = torch.npu.memory_stats()["allocation.all.allocated"]
    x.view(2, -1).transpose(0, 1)[1:].add_(y)
    assert torch.npu.memory_stats()["allocation.all.allocated"] == before


def test_more_than_the_device_has_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match=r"NPU out of memory.*TORCH_NPU_EMULATOR_MEMORY_GIB"):
        torch.empty(torch.npu.mem_get_info()[1] + 1, dtype=torch.uint8, device="npu")


def test_resizing_keeps_the_contents():
    x = torch.arange(4, device="npu")
    x.resize_(8)
    assert x.shape == (8,)
    assert x[:4].tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(4 * 8)
    assert x.untyped_storage().nbytes() == 32


def test_pinned_memory_is_known_as_such():
    assert torch.ones(3).pin_memory().is_pinned()
    assert not torch.ones(3).is_pinned()
    assert torch.empty(2, pin_memory=True).is_pinned()


@pytest.mark.parametrize(("switch", "expected"), [("1", "True True"), ("0", "False False")])
def test_switches_poison_what_was_never_written(switch, expected):
    code = """
import torch
g = torch.npu.NPUGraph()
with torch.npu.graph(g):
    y = torch.ones(4, device="npu") + 1
early = y.isnan().all().item()
g.replay()
assert y.tolist() == [2] * 4
print(torch.empty(100, device="npu").isnan().all().item(), early)
"""
    switches = {f"TORCH_NPU_EMULATOR_POISON_{name}": switch for name in ("EMPTY", "CAPTURE")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | switches,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == expected, done.stderr
