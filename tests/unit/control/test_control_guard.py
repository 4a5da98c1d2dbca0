"""What of an outcome is believed."""

import numpy as np
import pytest

from vllm_hust_vspec.control import StepOutcome
from vllm_hust_vspec.control.guard import sift, whole


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, True), (7, True), ((1 << 31) - 1, True), (1 << 31, False), (-1, False), (1.0, False), ("1", False),
     (None, False), (True, False), (np.int64(3), False), (np.bool_(True), False)],
)  # fmt: skip
def test_only_a_plain_whole_number_is_a_count(value, expected):
    assert whole(value) is expected


def outcome(**changes):
    whole_step = {
        "gamma": 2, "num_decodes": 2, "num_prefill_tokens": 0, "context_tokens": 90, "proposed": (2, 2),
        "accepted": (1, 0), "committed_tokens": 3, "interval_s": 0.03, "verify_tokens": 6, "draft_passes": 2,
    }  # fmt: skip
    return StepOutcome(**{**whole_step, **changes})


def test_an_honest_outcome_is_believed_whole():
    seen = sift(outcome(), 4)
    assert (seen.gamma, seen.pairs, seen.seconds, seen.ignored) == (2, {(2, 1): 1, (2, 0): 1}, 0.03, 0)
    assert (seen.step.batch, seen.step.verify, seen.step.passes, seen.step.any_draft) == (2, 6, 2, 1.0)


@pytest.mark.parametrize(
    "changes",
    [{"gamma": True}, {"gamma": 5}, {"gamma": -1}, {"gamma": 2.0}],
    ids=str,
)
def test_nothing_is_believed_of_a_step_whose_gamma_cannot_be(changes):
    seen = sift(outcome(**changes), 4)
    assert (seen.gamma, seen.pairs, seen.step, seen.ignored) == (None, {}, None, 1)


@pytest.mark.parametrize(
    "changes",
    [{"interval_s": 0.0}, {"interval_s": float("nan")}, {"interval_s": 3600.0}, {"num_decodes": True},
     {"context_tokens": -1}, {"draft_passes": 2.5}],
    ids=str,
)  # fmt: skip
def test_drafts_are_believed_where_only_the_time_or_a_size_cannot_be(changes):
    seen = sift(outcome(**changes), 4)
    assert (seen.pairs, seen.step, seen.ignored) == ({(2, 1): 1, (2, 0): 1}, None, 1)


def test_impossible_drafts_are_left_out_and_the_others_kept():
    seen = sift(outcome(proposed=(2, 2, 9, 2), accepted=(1, 3, 1, -1)), 4)
    assert (seen.pairs, seen.ignored) == ({(2, 1): 1}, 3)
    assert sift(outcome(proposed=(2,), accepted=(1, 1)), 4).pairs == {}
