"""Rotary position embedding in the forms that the hosts call."""

import math

import torch
from torch import Tensor

from torch_npu.ops.binding import npu

HALF, INTERLEAVED = "half", "interleave"


def rotate(x: Tensor, mode: str) -> Tensor:
    """(-second, first) of each pair; pairs are the two halves of the last dimension, or its neighbours."""
    if mode == HALF:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if mode in (INTERLEAVED, "interleaved"):
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    raise NotImplementedError(f"rotary_mode {mode!r} is not emulated; use 'half' or 'interleave'")


def spread(angles: Tensor, mode: str) -> Tensor:
    """One value per pair [..., d / 2] → one per channel [..., d], in the order of `rotate`."""
    return torch.cat((angles, angles), -1) if mode == HALF else angles.repeat_interleave(2, -1)


@npu.operator(
    "npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor"
)
def rotary_mul(
    x: Tensor, cos: Tensor, sin: Tensor, rotary_mode: str = HALF, rotate_matrix: Tensor | None = None
) -> Tensor:
    """x * cos + rotate(x) * sin, in fp32; cos and sin broadcast against x and hold a value per channel."""
    if rotate_matrix is not None:
        raise NotImplementedError("npu_rotary_mul with a rotation matrix is not emulated")
    return (x.float() * cos.float() + rotate(x, rotary_mode).float() * sin.float()).to(x.dtype)


@npu.operator(
    "npu_apply_rotary_pos_emb(Tensor(a!) query, Tensor(b!) key, Tensor cos, Tensor sin, str layout='BSH', "
    "str rotary_mode='half') -> (Tensor(a!), Tensor(b!))",
    meta=lambda query, key, *rest, **options: (query, key),
)
def apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSH", rotary_mode: str = HALF
) -> tuple[Tensor, Tensor]:
    """Rotate query and key [B, S, N, D] in place, as the hardware does; cos, sin: [B, S, 1, D]. Returns them."""
    if layout != "BSH":
        raise NotImplementedError(f"npu_apply_rotary_pos_emb layout {layout!r} is not emulated; use 'BSH'")
    for x in (query, key):
        x.copy_(rotary_mul(x, cos, sin, rotary_mode))
    return query, key


def angles_of(positions: Tensor, cos_sin_cache: Tensor, sections: list[int] | None) -> tuple[Tensor, Tensor]:
    """cos and sin, each [T, d / 2], of positions [T], or of [3, T] (time, height, width) split by `sections`."""
    if not sections or not any(sections):
        cos, sin = cos_sin_cache[positions.reshape(-1).long()].chunk(2, -1)
        return cos, sin
    if positions.shape[0] != 3 or sum(sections) != cos_sin_cache.shape[-1] // 2:
        raise ValueError(
            f"mrope sections {sections} need positions [3, T] and a sum of {cos_sin_cache.shape[-1] // 2}; "
            f"positions are {list(positions.shape)}"
        )
    axes = cos_sin_cache[positions.long()].chunk(2, -1)
    cos, sin = (torch.cat([part[axis] for axis, part in enumerate(torch.split(x, sections, -1))], -1) for x in axes)
    return cos, sin


def embed(x: Tensor, cos: Tensor, sin: Tensor, head_size: int, mode: str) -> Tensor:
    """Rotate the first 2 * cos.shape[-1] channels of every head; x: [T, heads * head_size] or [T, heads, head_size]."""
    heads = x.reshape(cos.shape[0], math.prod(x.shape[1:]) // head_size, head_size)
    width = 2 * cos.shape[-1]
    rotated = rotary_mul(heads[..., :width], spread(cos, mode)[:, None], spread(sin, mode)[:, None], mode)
    return torch.cat((rotated, heads[..., width:]), -1).reshape(x.shape)


@npu.operator(
    "npu_mrope(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, *, "
    "int[]? mrope_section=None, str? rotary_mode='half', str? cache_mode='default') -> (Tensor, Tensor)",
    meta=lambda positions, query, key, *rest, **options: (torch.empty_like(query), torch.empty_like(key)),
)
def mrope(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    *,
    mrope_section: list[int] | None = None,
    rotary_mode: str | None = HALF,
    cache_mode: str | None = "default",
) -> tuple[Tensor, Tensor]:
    """Rotary embedding by position out of a table, one or three positions a token.

    positions: [T] or [3, T]; query: [T, heads * head_size]; key: [T, kv heads * head_size]; cos_sin_cache: [positions,
    d], its first half cosines, d ≤ head_size (channels beyond d pass through). Returns new (query, key).
    """
    if cache_mode not in (None, "default"):
        raise NotImplementedError(f"npu_mrope cache_mode {cache_mode!r} is not emulated")
    mode = HALF if rotary_mode in (None, HALF) else INTERLEAVED
    cos, sin = angles_of(positions, cos_sin_cache, mrope_section)
    return embed(query, cos, sin, head_size, mode), embed(key, cos, sin, head_size, mode)


@npu.call("_npu_rotary_embedding")
def rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool = True
) -> None:
    """`mrope` with one position a token, in place."""
    cos, sin = angles_of(positions, cos_sin_cache, None)
    for x in (query, key):
        x.copy_(embed(x, cos, sin, head_size, HALF if is_neox_style else INTERLEAVED))
