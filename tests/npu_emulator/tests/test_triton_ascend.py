"""Triton kernels on the emulated device: interpreted, without copies, one device call a launch."""

import subprocess
import sys

import torch
import triton
import triton.language as tl
from triton.language.extra.cann.extension import extract_slice, get_element, insert_slice

import torch_npu  # noqa: F401


@triton.jit
def add_one(source, target, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) + 1, mask=at < count)


@triton.jit
def slices(source, target):  # type: ignore[no-untyped-def]
    block = tl.load(source + tl.arange(0, 8))
    part = extract_slice(block, [2], [4], [1])
    block = insert_slice(block, part * 10, [4], [4], [1])
    tl.store(target + tl.arange(0, 8), block)
    tl.store(target + 8, get_element(block, [1]))


def test_a_kernel_reads_and_writes_device_memory() -> None:
    source, target = torch.arange(10.0).npu(), torch.zeros(12).npu()
    add_one[(3,)](source, target, 10, BLOCK=4)
    assert target.cpu().tolist() == [*range(1, 11), 0, 0]


def test_a_launch_touches_only_what_the_kernel_writes() -> None:
    """A kernel gets the device's own memory: what it does not write is not copied back either."""
    whole = torch.zeros(8).npu()
    before = whole.data_ptr()
    add_one[(1,)](torch.ones(4).npu(), whole[2:6], 4, BLOCK=4)
    assert whole.cpu().tolist() == [0, 0, 2, 2, 2, 2, 0, 0]
    assert whole.data_ptr() == before


def test_slices_of_blocks() -> None:
    target = torch.zeros(9).npu()
    slices[(1,)](torch.arange(8.0).npu(), target)
    assert target.cpu().tolist() == [0, 1, 2, 3, 20, 30, 40, 50, 1]


@triton.jit
def reversed_sum(source, target, LENGTH: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    block = tl.load(source + tl.arange(0, LENGTH))
    tl.store(target + tl.arange(0, LENGTH), tl.zeros([LENGTH], tl.float32) + tl.sum(block) - block)


def test_blocks_may_have_any_length() -> None:
    target = torch.zeros(5).npu()
    reversed_sum[(1,)](torch.arange(5.0).npu(), target, LENGTH=5)
    assert target.cpu().tolist() == [10, 9, 8, 7, 6]


def test_a_captured_launch_runs_again_at_every_replay() -> None:
    source, target = torch.zeros(4).npu(), torch.zeros(4).npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        add_one[(1,)](source, target, 4, BLOCK=4)
    for value in (3.0, 8.0):
        source.fill_(value)
        graph.replay()
        assert target.cpu().tolist() == [value + 1] * 4


def test_hosts_find_the_cores_of_the_device() -> None:
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    assert properties["num_aicore"] > 0
    assert properties["num_vectorcore"] > 0
    assert triton.runtime.driver.active.get_active_torch_device().type == "npu"


def test_compiling_triton_is_refused_at_import() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import torch_npu"],
        env={**__import__("os").environ, "TRITON_INTERPRET": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode != 0
    assert "TRITON_INTERPRET=1" in result.stderr
