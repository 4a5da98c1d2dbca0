import math

import pytest

from vllm_hust_vspec.demo.identity import (
    QUIET,
    Divergence,
    Noise,
    first_difference,
    gap,
    judge,
    noise_along,
    noise_between,
)

DIVERGED = Divergence("story", 8, "fixed-2", request=1, position=4, expected=10, got=20, prefix=(1, 2))


@pytest.mark.parametrize(
    ("expected", "got", "position"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 5, 3], 1), ([1, 2, 3], [1, 2], 2), ([], [7], 0), ([], [], None)],
)
def test_the_first_difference_is_found(expected: list[int], got: list[int], position: int | None) -> None:
    assert first_difference(expected, got) == position


def test_the_gap_is_between_the_two_likeliest() -> None:
    assert gap({1: -3.0, 2: -0.5, 3: -0.75}) == pytest.approx(0.25)
    assert gap({1: -0.1}) == math.inf
    assert gap({}) == math.inf


def test_a_near_tie_within_the_noise_explains_a_divergence() -> None:
    judged = judge(DIVERGED, {10: -0.7, 20: -0.8, 30: -5.0}, Noise(0.125, 100))
    assert judged.explained
    assert judged.gap == pytest.approx(0.1)


def test_a_gap_beyond_the_noise_stays_unexplained() -> None:
    assert not judge(DIVERGED, {10: -0.5, 20: -1.0}, Noise(0.25, 100)).explained


def test_without_noise_only_an_exact_tie_is_explained() -> None:
    assert judge(DIVERGED, {10: -0.7, 20: -0.7}, QUIET).explained
    assert not judge(DIVERGED, {10: -0.7, 20: -0.701}, QUIET).explained


def test_a_token_that_target_only_does_not_consider_is_never_explained() -> None:
    judged = judge(DIVERGED, {10: -0.7, 30: -0.7, 40: -0.7}, Noise(5.0, 100))
    assert not judged.explained, "token 20 is not among the likeliest, so no near tie explains it"


def test_a_near_tie_of_two_other_tokens_does_not_explain() -> None:
    top = {30: -0.6, 40: -0.6, 10: -4.0, 20: -4.0}
    assert not judge(DIVERGED, top, Noise(0.25, 100)).explained


def test_noise_is_the_change_of_the_gap_of_the_same_two_tokens() -> None:
    assert noise_between({1: -0.5, 2: -0.75}, {1: -0.75, 2: -0.5}) == Noise(pytest.approx(0.5), 1)
    assert noise_between({1: -0.5, 2: -0.75}, {1: -0.5, 3: -0.75}) == QUIET


def test_noise_along_two_answers_stops_where_their_prefixes_part() -> None:
    tops = [{1: -0.5, 2: -0.6}, {3: -0.5, 4: -0.9}, {5: -0.1, 6: -9.0}]
    others = [{1: -0.5, 2: -0.7}, {3: -0.9, 4: -0.5}, {5: -9.0, 6: -0.1}]
    found = noise_along([1, 3, 5], tops, [1, 4, 6], others)
    assert found.samples == 2, "after the second token the prefixes differ, so the third says nothing"
    assert found.largest == pytest.approx(0.8)


def test_noise_adds_up_to_its_largest() -> None:
    assert Noise(0.1, 3) | Noise(0.3, 2) == Noise(0.3, 5)
