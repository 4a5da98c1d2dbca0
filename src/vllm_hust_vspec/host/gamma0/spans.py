"""How a replay is cut into drafter passes that fit its buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Positions first..end-1 of the request in a row of the batch."""

    row: int
    first: int
    end: int


def passes(owed: Sequence[Span], room: int) -> Iterator[list[Span]]:
    """The passes of a replay, each a list of spans, at most one of a request, short ones first.

    room: tokens that a pass holds; a span takes one more than its length, for the token that follows it. A request's
    positions come in order, because each needs the KV of those before it.

    Raises ValueError where not even one position fits.
    """
    if room < 2:
        raise ValueError(f"a drafter pass of {room} tokens holds no span and the token after it")
    left = sorted((span for span in owed if span.first < span.end), key=lambda span: span.end - span.first)
    while left:
        taken, rest, free = [], [], room
        for span in left:
            fits = min(span.end - span.first, free - 1)
            if fits < 1:
                rest.append(span)
                continue
            taken.append(Span(span.row, span.first, span.first + fits))
            free -= fits + 1
            if span.first + fits < span.end:
                rest.append(Span(span.row, span.first + fits, span.end))
        yield sorted(taken, key=lambda span: span.end - span.first)
        left = rest
