"""Each rule accepts what its definition says, token by token, for every dtype of logits, with ties and masks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hust_vspec.ops.accept import accept_among_best, accept_best, accept_within_margin

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass
class Case:
    """logits [R, V]; rows, drafts, best, relaxed: one entry a draft."""

    logits: torch.Tensor
    rows: torch.Tensor
    drafts: torch.Tensor
    relaxed: torch.Tensor

    @property
    def best(self) -> torch.Tensor:
        return self.logits.argmax(dim=-1)[self.rows]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few distinct logits, so that ties are common; some masked tokens, but for the last; drafts out of range too."""
    vocabulary, num_rows = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    logit = st.sampled_from([-math.inf, -3.0, -1.25, 0.0, 0.3, 1.5, 2.0, 100.0]) | st.floats(-8, 8, width=16)
    row = st.lists(logit, min_size=vocabulary, max_size=vocabulary).map(lambda v: [*v[:-1], max(v[-1], -9.0)])
    logits = draw(st.lists(row, min_size=num_rows, max_size=num_rows))
    rows = draw(st.lists(st.integers(0, num_rows - 1), min_size=0, max_size=8))
    drafts = [draw(st.integers(-1, vocabulary)) for _ in rows]
    relaxed = [draw(st.booleans()) for _ in rows]
    return Case(
        torch.tensor(logits, dtype=draw(st.sampled_from(DTYPES))),
        torch.tensor(rows, dtype=torch.int64),
        torch.tensor(drafts, dtype=draw(st.sampled_from([torch.int32, torch.int64]))),
        torch.tensor(relaxed, dtype=torch.bool),
    )


def plain_among_best(case: Case, k: int) -> list[bool]:
    taken = []
    for row, draft, best, relaxed in zip(case.rows, case.drafts, case.best, case.relaxed, strict=True):
        values = case.logits[row].tolist()
        own = values[draft] if 0 <= draft < len(values) else -math.inf
        better = sum(value > own for value in values)
        taken.append(bool(draft == best) or bool(relaxed and own > -math.inf and better < k))
    return taken


def plain_within_margin(case: Case, margin: float, protected: list[int]) -> list[bool]:
    limit = torch.tensor(margin, dtype=torch.float32).item()  # the rule's distances are fp32, its limit too
    taken = []
    for row, draft, best, relaxed in zip(case.rows, case.drafts, case.best, case.relaxed, strict=True):
        values = case.logits[row].float()
        near = 0 <= draft < len(values) and math.isfinite(values[draft]) and (values.max() - values[draft]) <= limit
        taken.append(bool(draft == best) or bool(relaxed and near and int(draft) not in protected))
    return taken


@settings(deadline=None)
@given(cases(), st.integers(1, 12))
def test_among_best_accepts_by_rank(case: Case, k: int) -> None:
    k = min(k, case.logits.shape[1])
    found = accept_among_best(case.logits, case.rows, case.drafts, case.best, k, case.relaxed)
    assert found.tolist() == plain_among_best(case, k)


@settings(deadline=None)
@given(cases(), st.sampled_from([0.0, 0.25, 1.5, 2.0, 97.0, 1e9]) | st.floats(0, 20, width=32), st.data())
def test_within_margin_accepts_by_distance(case: Case, margin: float, data: st.DataObject) -> None:
    protected = data.draw(st.lists(st.integers(0, case.logits.shape[1] - 1), max_size=3))
    found = accept_within_margin(
        case.logits, case.rows, case.drafts, case.best, margin, case.relaxed, torch.tensor(protected, dtype=torch.int64)
    )
    assert found.tolist() == plain_within_margin(case, margin, protected)


@settings(deadline=None)
@given(cases())
def test_where_no_rule_holds_acceptance_is_strict(case: Case) -> None:
    nowhere, none = torch.zeros_like(case.relaxed), torch.tensor([], dtype=torch.int64)
    strict = accept_best(case.drafts, case.best)
    k = case.logits.shape[1]
    assert torch.equal(accept_among_best(case.logits, case.rows, case.drafts, case.best, k, nowhere), strict)
    assert torch.equal(accept_within_margin(case.logits, case.rows, case.drafts, case.best, 9.0, nowhere, none), strict)


@settings(deadline=None)
@given(cases())
def test_the_best_token_is_the_same_in_fp32(case: Case) -> None:
    """The host takes it from an fp32 copy, ties included."""
    assert torch.equal(case.logits.argmax(dim=-1), case.logits.float().argmax(dim=-1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_are_only_read(dtype: torch.dtype) -> None:
    logits = torch.randn(5, 30).to(dtype)
    before, rows, drafts = logits.clone(), torch.tensor([0, 3]), torch.tensor([7, -1])
    best, everywhere = logits.argmax(dim=-1)[rows], torch.tensor([True, True])
    accept_among_best(logits, rows, drafts, best, 4, everywhere)
    accept_within_margin(logits, rows, drafts, best, 4.0, everywhere, torch.tensor([1]))
    assert torch.equal(logits, before)
