"""Attention over ragged batches: the arithmetic that every attention operator of this package shares.

Requests of equal query length are computed together, so that a decode batch is a handful of tensor operations. Key and
value positions at or beyond a request's length are never used: neither their scores nor, were they NaN, their values.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Band:
    """Which keys a query sees: those at most `before` positions before its own and `after` behind it.

    A query's own position is counted from the end of the keys (the last query sits on the last key), or from their
    start when `from_start`.
    """

    before: int = UNBOUNDED
    after: int = UNBOUNDED
    from_start: bool = False

    def hidden(self, query_length: int, lengths: Tensor, keys: int) -> Tensor | None:
        """bool [G, L, S], true where a key is out of the band, or None when the band hides nothing."""
        if self.before >= UNBOUNDED and self.after >= UNBOUNDED:
            return None
        offset = 0 if self.from_start else (lengths - query_length)[:, None, None]
        distance = torch.arange(keys) - torch.arange(query_length)[:, None] - offset
        return (distance > self.after) | (distance < -self.before)


CAUSAL = Band(after=0)
EVERYTHING = Band()


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the keys and values of each request are: `gather(requests, width)` gives [G, width, kv heads, D] of both.

    Positions at or beyond a request's length may hold anything.
    """

    lengths: list[int]
    gather: Callable[[list[int], int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Attended:
    """output [T, H, Dv] in the query's dtype; row_max and row_sum, fp32 [T, H], of the softmax of every row.

    A row that sees no key has output 0, row_max -inf and row_sum 0.
    """

    output: Tensor
    row_max: Tensor
    row_sum: Tensor

    def log_sum_exp(self) -> Tensor:
        """fp32 [T, H]; inf where a row sees no key, as the hardware marks it."""
        lse = self.row_max + self.row_sum.log()
        return lse.masked_fill(self.row_sum == 0, float("inf"))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[T, ...] as [T, heads, D]."""
    return x.reshape(x.shape[0], heads, math.prod(x.shape[1:]) // heads)


def dense_keys(key: Tensor, value: Tensor, starts: Sequence[int], lengths: Sequence[int]) -> Keys:
    """Keys of packed requests: request i owns lengths[i] rows from starts[i] of key and value [T, kv heads, D]."""

    def gather(requests: list[int], width: int) -> tuple[Tensor, Tensor]:
        rows = torch.tensor([starts[i] for i in requests])[:, None] + torch.arange(width)
        rows = rows.clamp_(max=max(key.shape[0] - 1, 0))
        return key[rows], value[rows]

    for start, length in zip(starts, lengths, strict=True):
        if start + length > key.shape[0]:
            raise ValueError(f"attention: keys end at {key.shape[0]}, a request needs rows {start}..{start + length}")
    return Keys(list(lengths), gather)


def paged_keys(key_cache: Tensor, value_cache: Tensor, block_table: Tensor, lengths: Sequence[int]) -> Keys:
    """Keys of requests in a paged cache.

    key_cache, value_cache: [blocks, block size, kv heads, D]; block_table: integer [≥ requests, columns]. Entries of a
    row beyond the blocks that its length needs may hold anything.
    """
    blocks, block_size = key_cache.shape[:2]
    capacity = block_table.shape[1] * block_size
    if len(lengths) > block_table.shape[0]:
        raise ValueError(f"attention: {len(lengths)} requests, but a block table of {block_table.shape[0]} rows")
    if lengths and max(lengths) > capacity:
        raise ValueError(f"attention: {max(lengths)} keys, but a block table row holds {capacity}")

    def gather(requests: list[int], width: int) -> tuple[Tensor, Tensor]:
        columns = -(-width // block_size)
        ids = block_table[requests, :columns].long()
        needed = (torch.tensor([lengths[i] for i in requests]) + block_size - 1) // block_size
        used = torch.arange(columns) < needed[:, None]
        if bool(((ids < 0) | (ids >= blocks))[used].any()):
            raise IndexError(f"attention: the block table names a block outside 0..{blocks - 1}: {ids[used].tolist()}")
        ids = ids.where(used, 0)
        shape = (len(requests), columns * block_size)
        key, value = (cache[ids].reshape(*shape, *cache.shape[2:])[:, :width] for cache in (key_cache, value_cache))
        return key, value

    return Keys(list(lengths), gather)


def attend(
    query: Tensor,
    query_lengths: Sequence[int],
    keys: Keys,
    scale: float,
    band: Band = EVERYTHING,
    bias: Callable[[int, int, int], Tensor] | None = None,
    sinks: Tensor | None = None,
) -> Attended:
    """softmax(scale * q kᵀ + bias) v per request and head, in fp32.

    query: [T, H, D], requests one after the other; H is a multiple of the number of key heads. `bias(request, L, S)` is
    added to that request's scores and broadcasts against [H, L, S]. sinks: [H], a logit per head that takes part in the
    softmax and carries no value. Rows of `query` beyond the sum of query_lengths get output 0.
    """
    rows, heads = query.shape[:2]
    starts = [0]
    for length in query_lengths:
        starts.append(starts[-1] + length)
    groups: dict[int, list[int]] = defaultdict(list)
    for request, length in enumerate(query_lengths):
        if length and keys.lengths[request]:
            groups[length if bias is None else -request - 1].append(request)

    row_max = torch.full((rows, heads), float("-inf"))
    row_sum = torch.zeros(rows, heads)
    output: Tensor | None = None
    for requests in groups.values():
        length = query_lengths[requests[0]]
        index = (torch.tensor([starts[i] for i in requests])[:, None] + torch.arange(length)).flatten()
        extra = bias(requests[0], length, keys.lengths[requests[0]]) if bias is not None else None
        part = _attend_equal(
            query[index].unflatten(0, (len(requests), length)), requests, keys, scale, band, extra, sinks
        )
        if output is None:
            output = query.new_zeros(rows, heads, part[0].shape[-1])
        output[index] = part[0].flatten(0, 1).to(query.dtype)
        row_max[index], row_sum[index] = part[1].flatten(0, 1), part[2].flatten(0, 1)
    if output is None:
        output = query.new_zeros(query.shape)
    return Attended(output, row_max, row_sum)


def _attend_equal(
    query: Tensor,
    requests: list[int],
    keys: Keys,
    scale: float,
    band: Band,
    bias: Tensor | None,
    sinks: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`attend` for requests of one query length. query: [G, L, H, D]. Returns [G, L, H, Dv], [G, L, H], [G, L, H]."""
    count, length, heads, _ = query.shape
    lengths = torch.tensor([keys.lengths[i] for i in requests])
    width = int(lengths.max())
    key, value = keys.gather(requests, width)
    key_heads = key.shape[2]
    if heads % key_heads:
        raise ValueError(f"attention: {heads} query heads are not a multiple of {key_heads} key heads")
    beyond = torch.arange(width) >= lengths[:, None]

    # The query heads that share a key head become further rows of it: [G, key heads, repeats * L, D].
    q = query.float().view(count, length, key_heads, heads // key_heads, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)
    k = key.float().permute(0, 2, 3, 1)
    v = value.float().masked_fill(beyond[:, :, None, None], 0.0).permute(0, 2, 1, 3)
    scores = (q @ k).mul_(scale).view(count, heads, length, width)
    if bias is not None:
        scores += bias.float()
    hidden = beyond[:, None, :]
    out_of_band = band.hidden(length, lengths, width)
    if out_of_band is not None:
        hidden = hidden | out_of_band
    scores.masked_fill_(hidden[:, None], float("-inf"))

    top = scores.amax(-1, keepdim=True)
    if sinks is not None:
        top = top.maximum(sinks.float()[None, :, None, None])
    weights = (scores - top.masked_fill(top == float("-inf"), 0.0)).exp_()
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total += (sinks.float()[None, :, None, None] - top).exp()
    mixed = weights.view(count, key_heads, -1, width) @ v
    mixed = mixed.view(count, heads, length, -1) / total.masked_fill(total == 0, 1.0)
    return mixed.transpose(1, 2), top.squeeze(-1).transpose(1, 2), total.squeeze(-1).transpose(1, 2)
