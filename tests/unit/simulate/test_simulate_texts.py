"""What texts promise: luck and offers fixed by the seed, rates and bursts as asked."""

import numpy as np
import pytest

from vllm_hust_vspec.simulate.texts import DEEPEST, RATES, Nature, Offers, Texts, expected_tokens


def texts(requests=200, length=150, seed=1):
    return Texts([length] * requests, [50] * requests, (seed,))


def body(made, array):
    return array.reshape(len(made.lengths), made.width)[:, : int(made.lengths[0])]


@pytest.mark.parametrize("gamma", [1, 2, 4, 8])
@pytest.mark.parametrize("rates", ["high", "middling", "low"])
def test_acceptance_is_that_of_the_rates(rates, gamma):
    made = texts()
    accepted = np.minimum(body(made, made.accepted(rates)), gamma)
    assert 1.0 + accepted.mean() == pytest.approx(expected_tokens(Nature(rates), [gamma])[0], rel=0.02)


def test_what_is_accepted_at_low_rates_is_accepted_at_high_ones():
    made = texts()
    assert (made.accepted("low") <= made.accepted("middling")).all()
    assert (made.accepted("middling") <= made.accepted("high")).all()


def test_certain_and_hopeless_drafts():
    made = texts(4, 40)
    assert body(made, made.accepted((1.0,)))[:, 0].tolist() == [DEEPEST] * 4
    assert not made.accepted((0.0,)).any()


def test_mixed_requests_differ_and_stay_what_they_are():
    made = texts()
    means = np.minimum(body(made, made.accepted("mixed")), 1).mean(axis=1)
    kinds = np.array([RATES[name][0] for name in ("high", "middling", "low")])
    distance = np.abs(means[:, None] - kinds).min(axis=1)
    assert distance.max() < 0.17
    assert means.std() > 0.2


def test_mixed_expectation_counts_that_slow_requests_stay_longer():
    tokens = expected_tokens(Nature("mixed"), [4])[0]
    alone = [expected_tokens(Nature(name), [4])[0] for name in ("high", "middling", "low")]
    assert tokens < sum(alone) / 3
    assert tokens == pytest.approx(3 / sum(1 / each for each in alone))


def test_offers_come_at_their_share_in_bursts():
    made = texts(400)
    offered = body(made, made.offered(Offers(0.3, 12.0)))
    assert offered.mean() == pytest.approx(0.3, abs=0.03)
    ends = (np.diff(offered, axis=1) == -1).sum()
    assert offered.sum() / ends == pytest.approx(12.0, rel=0.2)


def test_offers_grow_with_the_age_of_an_answer():
    made = texts(400)
    offered = body(made, made.offered(Offers(0.5, 4.0, ramp=40)))
    assert offered[:, 0].sum() == 0
    assert offered[:, 5:15].mean() < 0.6 * offered[:, 60:].mean()
    assert offered[:, 60:].mean() == pytest.approx(0.5, abs=0.05)


def test_a_drafter_that_always_offers_needs_no_array():
    assert texts().offered(None) is None


def test_the_seed_alone_decides():
    one, same, other = texts(5), texts(5), texts(5, seed=2)
    assert (one.accepted("high") == same.accepted("high")).all()
    assert (one.accepted("high") != other.accepted("high")).any()
