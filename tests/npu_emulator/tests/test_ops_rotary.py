"""Rotary embedding against a loop over tokens, heads and channel pairs."""

import math

import pytest
import torch

import torch_npu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def table(positions: int, width: int) -> torch.Tensor:
    angles = torch.arange(positions)[:, None] * 0.3 ** torch.arange(width // 2)
    return torch.cat((angles.cos(), angles.sin()), -1)


def rotated(x: torch.Tensor, positions: list[int], cache: torch.Tensor, head_size: int, neox: bool) -> torch.Tensor:
    """x: [T, heads * head_size]."""
    result = x.double().clone().view(len(positions), -1, head_size)
    half = cache.shape[-1] // 2
    for token, position in enumerate(positions):
        for head in range(result.shape[1]):
            for pair in range(half):
                i, j = (pair, pair + half) if neox else (2 * pair, 2 * pair + 1)
                cos, sin = float(cache[position, pair]), float(cache[position, pair + half])
                a, b = result[token, head, i].item(), result[token, head, j].item()
                result[token, head, i] = a * cos - b * sin
                result[token, head, j] = b * cos + a * sin
    return result.view(x.shape)


def inputs(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(tokens, heads * 16, generator=generator).to(dtype) for heads in (4, 2))  # type: ignore


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("width", [16, 8])
def test_mrope_with_one_position_a_token_rotates_pairs(width: int, neox: bool, dtype: torch.dtype) -> None:
    positions, cache, (query, key) = [5, 0, 9, 5], table(10, width).to(dtype), inputs(4, dtype)
    new = torch_npu.npu_mrope(
        torch.tensor(positions).npu(), query.npu(), key.npu(), cache.npu(), 16,
        mrope_section=[0, 0, 0], rotary_mode="half" if neox else "interleaved", cache_mode="default",
    )  # fmt: skip
    for actual, x in zip(new, (query, key), strict=True):
        expected = rotated(x, positions, cache, 16, neox)
        torch.testing.assert_close(actual.cpu().double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        assert actual.dtype == dtype


def test_mrope_takes_each_section_from_its_own_axis() -> None:
    sections, cache, (query, key) = [2, 3, 3], table(20, 16), inputs(3)
    positions = torch.tensor([[0, 4, 7], [2, 5, 19], [9, 1, 3]])
    new_query, _ = torch_npu.npu_mrope(
        positions.npu(), query.npu(), key.npu(), cache.npu(), 16, mrope_section=sections, rotary_mode="half"
    )
    axis = [0] * 2 + [1] * 3 + [2] * 3
    for token in range(3):
        own = (
            torch.cat([cache[positions[axis[pair], token], [pair, pair + 8]] for pair in range(8)])
            .view(8, 2)
            .T.reshape(1, 16)
        )
        expected = rotated(query[token : token + 1], [0], own, 16, True)
        torch.testing.assert_close(new_query[token : token + 1].cpu().double(), expected, atol=1e-5, rtol=1e-5)


def test_mrope_refuses_sections_that_do_not_cover_the_table() -> None:
    query, key = inputs(3)
    with pytest.raises(ValueError, match="sections"):
        torch_npu.npu_mrope(
            torch.zeros(3, 3, dtype=torch.long).npu(),
            query.npu(),
            key.npu(),
            table(4, 16).npu(),
            16,
            mrope_section=[1, 1, 1],
        )


@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding_works_in_place(neox: bool) -> None:
    positions, cache, (query, key) = [3, 3, 1], table(6, 16), inputs(3)
    on_device = query.npu(), key.npu()
    addresses = [x.data_ptr() for x in on_device]
    torch_npu._npu_rotary_embedding(torch.tensor(positions).npu(), *on_device, 16, cache.npu(), neox)
    for actual, x in zip(on_device, (query, key), strict=True):
        torch.testing.assert_close(actual.cpu().double(), rotated(x, positions, cache, 16, neox), atol=1e-5, rtol=1e-5)
    assert [x.data_ptr() for x in on_device] == addresses


def test_rotary_embedding_of_no_token_is_empty() -> None:
    query, key = inputs(0)
    new = torch_npu.npu_mrope(torch.empty(0, dtype=torch.long).npu(), query.npu(), key.npu(), table(2, 16).npu(), 16)
    assert new[0].shape == (0, 64)
    assert new[1].shape == (0, 32)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_mul_and_apply_rotary_agree_with_the_pairs(mode: str) -> None:
    positions, cache = [2, 7], table(8, 16)
    query, key = (x.view(1, 2, -1, 16) for x in inputs(2))
    cos, sin = cache[positions].chunk(2, -1)
    spread = (lambda x: x.repeat(1, 2)) if mode == "half" else (lambda x: x.repeat_interleave(2, -1))
    cos, sin = (spread(x).view(1, 2, 1, 16).npu() for x in (cos, sin))
    expected = [rotated(x.reshape(2, -1), positions, cache, 16, mode == "half") for x in (query, key)]
    torch.testing.assert_close(
        torch_npu.npu_rotary_mul(query.npu(), cos, sin, rotary_mode=mode).cpu().double().view(2, -1),
        expected[0],
        atol=1e-5,
        rtol=1e-5,
    )
    on_device = query.npu(), key.npu()
    returned = torch_npu.npu_apply_rotary_pos_emb(*on_device, cos, sin, rotary_mode=mode)
    for out, given, want in zip(returned, on_device, expected, strict=True):
        torch.testing.assert_close(given.cpu().double().view(2, -1), want, atol=1e-5, rtol=1e-5)
        assert out.data_ptr() == given.data_ptr(), "the hardware's kernel writes into its inputs"


def test_a_quarter_turn_swaps_the_halves() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).npu()
    cos, sin = torch.zeros(4).npu(), torch.ones(4).npu()
    assert torch_npu.npu_rotary_mul(x, cos, sin).cpu().tolist() == [[-3.0, -4.0, 1.0, 2.0]]
    assert math.isclose(float(x.cpu().norm()), float(torch_npu.npu_rotary_mul(x, cos, sin).cpu().norm()))
