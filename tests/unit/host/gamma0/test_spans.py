"""A replay's passes cover every owed position once, in each request's order, and fit the drafter's buffers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vllm_hust_vspec.host.gamma0.spans import Span, passes


@given(
    owed=some.lists(some.tuples(some.integers(0, 40), some.integers(0, 60)), max_size=9),
    room=some.integers(2, 50),
)
def test_passes_cover_each_position_once_and_in_order(owed: list[tuple[int, int]], room: int) -> None:
    spans = [Span(row, first, first + length) for row, (first, length) in enumerate(owed)]
    reached = {span.row: span.first for span in spans}
    for taken in passes(spans, room):
        assert taken, "an empty pass"
        assert len({span.row for span in taken}) == len(taken)
        assert sum(span.end - span.first + 1 for span in taken) <= room
        lengths = [span.end - span.first for span in taken]
        assert lengths == sorted(lengths)
        for span in taken:
            assert span.first == reached[span.row] < span.end
            reached[span.row] = span.end
    assert reached == {span.row: span.end for span in spans}


def test_a_request_longer_than_a_pass_takes_several() -> None:
    assert list(passes([Span(0, 3, 10), Span(1, 5, 7)], 6)) == [
        [Span(1, 5, 7), Span(0, 3, 5)],
        [Span(0, 5, 10)],
    ]


def test_a_pass_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 tokens"):
        list(passes([Span(0, 0, 1)], 1))
