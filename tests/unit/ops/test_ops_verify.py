"""Linear verification commits what a loop over requests and drafts commits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hust_vspec.ops.verify import PLACEHOLDER, committed_tokens, draft_positions, owners


@dataclass
class Batch:
    """One list entry a request; drafts, accepted and best have one entry a draft in it."""

    drafts: list[list[int]]
    accepted: list[list[bool]]
    best: list[list[int]]
    bonus: list[int]

    @property
    def ends(self) -> list[int]:
        return list(accumulate(map(len, self.drafts)))

    @property
    def width(self) -> int:
        return max(map(len, self.drafts))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    token = st.integers(0, 9)
    any_widths, one_width = st.integers(0, 5), st.just(draw(st.integers(0, 5)))
    widths = draw(st.lists(any_widths, min_size=1, max_size=6) | st.lists(one_width, min_size=1, max_size=6))
    return Batch(
        [draw(st.lists(token | st.just(PLACEHOLDER), min_size=w, max_size=w)) for w in widths],
        [draw(st.lists(st.booleans(), min_size=w, max_size=w)) for w in widths],
        [draw(st.lists(token, min_size=w, max_size=w)) for w in widths],
        draw(st.lists(token, min_size=len(widths), max_size=len(widths))),
    )


def flat(rows: list[list[int]], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=dtype)


def committed(batch: Batch, index: torch.dtype = torch.int32) -> list[list[int]]:
    return committed_tokens(
        flat(batch.drafts, index),
        flat(batch.accepted, torch.bool),  # type: ignore[arg-type]
        flat(batch.best, torch.int64),
        torch.tensor(batch.bonus),
        torch.tensor(batch.ends, dtype=index),
        batch.width,
    ).tolist()


def plainly(batch: Batch) -> list[list[int]]:
    rows = []
    for drafts, accepted, best, bonus in zip(batch.drafts, batch.accepted, batch.best, batch.bonus, strict=True):
        row = []
        for draft, taken, own in zip(drafts, accepted, best, strict=True):
            if not taken:
                row.append(own)
                break
            row.append(draft)
        else:
            row.append(bonus)
        rows.append(row + [PLACEHOLDER] * (batch.width + 1 - len(row)))
    return rows


@settings(deadline=None)
@given(batches(), st.sampled_from([torch.int32, torch.int64]))
def test_a_step_commits_what_a_loop_would(batch: Batch, index: torch.dtype) -> None:
    assert committed(batch, index) == plainly(batch)


def test_tokens_are_int32_as_the_host_returns_them() -> None:
    one = torch.tensor([1])
    assert committed_tokens(one, one == one, one, one, one, 1).dtype == torch.int32
    none = torch.tensor([], dtype=torch.int32)
    assert committed_tokens(none, none == none, none, one, torch.tensor([0]), 0).dtype == torch.int32


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        (Batch([[5, 6]], [[True, True]], [[5, 6]], [7]), [[5, 6, 7]]),
        (Batch([[5, 6]], [[False, True]], [[4, 6]], [7]), [[4, -1, -1]]),
        (Batch([[5], [], [1, 2]], [[True], [], [True, False]], [[5], [], [1, 9]], [7, 8, 3]), [[5, 7], [8], [1, 9]]),
        (Batch([[], []], [[], []], [[], []], [7, 8]), [[7], [8]]),
    ],
)
def test_by_hand(batch: Batch, tokens: list[list[int]]) -> None:
    want = [row + [-1] * (batch.width + 1 - len(row)) for row in tokens]
    assert committed(batch) == want


@settings(deadline=None)
@given(batches(), st.sampled_from([torch.int32, torch.int64]))
def test_each_draft_knows_its_request_and_its_place_in_it(batch: Batch, index: torch.dtype) -> None:
    ends = torch.tensor(batch.ends, dtype=index)
    owner = owners(ends, batch.ends[-1])
    assert owner.tolist() == [request for request, drafts in enumerate(batch.drafts) for _ in drafts]
    assert draft_positions(ends, owner).tolist() == [place for drafts in batch.drafts for place in range(len(drafts))]
