"""Cache writes against a loop over slots."""

from collections.abc import Callable

import pytest
import torch

import torch_npu


def reshape_and_cache(key, value, key_cache, value_cache, slots) -> None:  # type: ignore[no-untyped-def]
    torch_npu._npu_reshape_and_cache(
        key=key, value=value, key_cache=key_cache, value_cache=value_cache, slot_indices=slots
    )


def scatter_pa(key, value, key_cache, value_cache, slots) -> None:  # type: ignore[no-untyped-def]
    torch_npu.npu_scatter_pa_kv_cache(
        key=key, value=value, key_cache=key_cache, value_cache=value_cache, slot_mapping=slots, cache_mode="Norm"
    )


BOTH = pytest.mark.parametrize("write", [reshape_and_cache, scatter_pa])
BLOCKS, BLOCK_SIZE, HEADS, WIDTH = 4, 8, 2, 16


def write_and_read(write: Callable[..., None], slots: list[int], rows: int, dtype: torch.dtype = torch.float32):  # type: ignore
    key, value = torch.randn(rows, HEADS, WIDTH).to(dtype), torch.randn(rows, HEADS, WIDTH).to(dtype)
    caches = [torch.full((BLOCKS, BLOCK_SIZE, HEADS, WIDTH), 7.0, dtype=dtype).npu() for _ in range(2)]
    write(key.npu(), value.npu(), *caches, torch.tensor(slots, dtype=torch.int32).npu())
    for rows_of, cache in ((key, caches[0]), (value, caches[1])):
        expected = torch.full((BLOCKS * BLOCK_SIZE, HEADS, WIDTH), 7.0, dtype=dtype)
        for row, slot in zip(rows_of, slots, strict=False):
            if slot >= 0:
                expected[slot] = row
        assert torch.equal(cache.cpu().view(-1, HEADS, WIDTH), expected)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_land_in_their_slots(write: Callable[..., None], dtype: torch.dtype) -> None:
    write_and_read(write, [0, 31, 8, 7, 15], 5, dtype)


@BOTH
def test_padding_slots_are_skipped(write: Callable[..., None]) -> None:
    write_and_read(write, [3, -1, 9, -1, -1], 5)


@BOTH
def test_surplus_rows_beyond_the_slots_are_not_written(write: Callable[..., None]) -> None:
    write_and_read(write, [4, 5], 6)


@BOTH
def test_no_slot_writes_nothing(write: Callable[..., None]) -> None:
    write_and_read(write, [], 0)


@BOTH
def test_a_slot_beyond_the_cache_is_refused(write: Callable[..., None]) -> None:
    with pytest.raises(IndexError, match="slot 32 is beyond"):
        write_and_read(write, [0, 32], 2)


@BOTH
def test_a_cache_that_is_a_slice_of_a_larger_one_is_written_in_place(write: Callable[..., None]) -> None:
    whole = torch.zeros(2, BLOCKS, BLOCK_SIZE, HEADS, WIDTH).npu()
    row = torch.ones(1, HEADS, WIDTH).npu()
    write(row, 2 * row, whole[0], whole[1], torch.tensor([9], dtype=torch.int32).npu())
    assert whole[0].cpu().view(-1, HEADS * WIDTH)[9].eq(1).all()
    assert whole[1].cpu().view(-1, HEADS * WIDTH)[9].eq(2).all()
    assert whole.cpu().count_nonzero() == 2 * HEADS * WIDTH


def test_atb_write_takes_int32_slots_alone() -> None:
    row, cache = torch.ones(1, HEADS, WIDTH).npu(), torch.zeros(BLOCKS, BLOCK_SIZE, HEADS, WIDTH).npu()
    with pytest.raises(ValueError, match="int32"):
        reshape_and_cache(row, row, cache, cache, torch.tensor([0]).npu())


def test_other_cache_modes_name_the_operator() -> None:
    row, cache = torch.ones(1, HEADS, WIDTH).npu(), torch.zeros(BLOCKS, BLOCK_SIZE, HEADS, WIDTH).npu()
    with pytest.raises(NotImplementedError, match="npu_scatter_pa_kv_cache"):
        torch_npu.npu_scatter_pa_kv_cache(row, row, cache, cache, torch.tensor([0], dtype=torch.int32).npu())
