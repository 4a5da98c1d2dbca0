"""Attention as a loop over requests, heads, queries and keys: the reference of the attention tests."""

from collections.abc import Callable

import torch

POISON = float("nan")


def attention(
    queries: list[torch.Tensor],
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    scale: float,
    visible: Callable[[int, int, int, int], bool],
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed output [T, H, D] and log-sum-exp [T, H], in double precision.

    queries[r]: [L, H, D]; keys[r], values[r]: [S, N, D]. visible(query, key, L, S) says whether a key is seen.
    """
    outputs, lse = [], []
    for query, key, value in zip(queries, keys, values, strict=True):
        length, heads, width = query.shape
        stretch = heads // key.shape[1]
        for i in range(length):
            seen = [j for j in range(len(key)) if visible(i, j, length, len(key))]
            for head in range(heads):
                own = key[:, head // stretch].double(), value[:, head // stretch].double()
                if not seen:
                    outputs.append(torch.zeros(width, dtype=torch.double))
                    lse.append(float("inf"))
                    continue
                scores = own[0][seen] @ query[i, head].double() * scale
                logits = scores if sinks is None else torch.cat((scores, sinks[head : head + 1].double()))
                outputs.append(logits.softmax(0)[: len(seen)] @ own[1][seen])
                lse.append(float(logits.logsumexp(0)))
    heads, width = (queries[0].shape[1], queries[0].shape[2])
    return torch.stack(outputs).view(-1, heads, width), torch.tensor(lse, dtype=torch.double).view(-1, heads)


def causal(i: int, j: int, queries: int, keys: int) -> bool:
    return j <= i + keys - queries


def everything(i: int, j: int, queries: int, keys: int) -> bool:
    return True


def band(before: int, after: int) -> Callable[[int, int, int, int], bool]:
    return lambda i, j, queries, keys: -before <= j - (i + keys - queries) <= after


def ragged(lengths: list[int], heads: int, width: int, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, heads, width, generator=generator).to(dtype) for length in lengths]


def paged(
    rows: list[torch.Tensor], block_size: int, table: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A cache [blocks, block size, N, D] that holds the rows of each request, and its block table.

    Everything that belongs to no request is NaN, and unused table entries name blocks that do not exist. The blocks of
    the requests are interleaved, not contiguous.
    """
    needed = [-(-len(part) // block_size) for part in rows]
    columns = max(needed, default=0) + 2
    if table is None:
        free = torch.randperm(sum(needed) + 3, generator=torch.Generator().manual_seed(5)).tolist()
        table = torch.full((len(rows), columns), 10**6, dtype=torch.int32)
        for request, count in enumerate(needed):
            table[request, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
    cache = torch.full((sum(needed) + 3, block_size, *rows[0].shape[1:]), POISON, dtype=rows[0].dtype)
    for request, part in enumerate(rows):
        for position, row in enumerate(part):
            cache[table[request, position // block_size], position % block_size] = row
    return cache, table
