"""What acceptance.py promises: rates by position out of censored feedback."""

from collections import Counter

import numpy as np
import pytest

from vllm_hust_vspec.control.acceptance import Acceptance


def fed(rates, steps=60, batch=16, asked=4, offered=lambda rng: 4, into=None, seed=0):
    rng = np.random.default_rng(seed)
    learnt = into or Acceptance(4, 0.1, None)
    for _ in range(steps):
        pairs = Counter()
        for _ in range(batch):
            proposed = min(asked, offered(rng))
            accepted = 0
            while accepted < proposed and rng.random() < rates[accepted]:
                accepted += 1
            pairs[proposed, accepted] += 1
        learnt.observe(asked, pairs)
    return learnt


def test_acceptance_is_conditional_on_the_position_before():
    rates = (0.8, 0.6, 0.7, 0.5)
    assert fed(rates).accept == pytest.approx(rates, abs=0.12)


def test_expected_tokens_and_width_count_drafts_that_were_never_offered():
    learnt = fed((0.9, 0.9, 0.9, 0.9), steps=200, offered=lambda rng: 4 if rng.random() < 0.25 else 0)
    alone = 1 + sum(0.9**j for j in range(1, 5))
    assert learnt.width[4] == pytest.approx(4 * 0.25, abs=0.25)
    assert learnt.tokens[4] == pytest.approx(0.75 + 0.25 * alone, abs=0.25)
    assert learnt.accept[0] == pytest.approx(0.9, abs=0.05), "an offer that never came is no rejection"


def test_gamma_zero_teaches_nothing():
    learnt = fed((0.8, 0.6, 0.7, 0.5))
    before = list(learnt.accept)
    for _ in range(50):
        learnt.observe(0, Counter({(0, 0): 16}))
    assert learnt.accept == before


def test_small_gamma_leaves_deeper_positions_to_what_is_known():
    learnt = fed((0.8, 0.6, 0.7, 0.5))
    deep = learnt.accept[2:]
    fed((0.8, 0.6), steps=50, asked=2, offered=lambda rng: 2, into=learnt, seed=1)
    assert learnt.accept[2:] == pytest.approx(deep, abs=0.02)


@pytest.mark.parametrize("batch", [1, 32])
def test_a_shift_is_followed_within_150_drafts_or_8_steps(batch):
    learnt = fed((0.9,) * 4, steps=800 // batch, batch=batch)
    fed((0.2,) * 4, steps=max(8, 150 // batch), batch=batch, into=learnt, seed=2)
    assert learnt.accept[0] < 0.45, f"still believes {learnt.accept[0]:.2f}"


def test_a_larger_weight_forgets_faster():
    learnt = {}
    for weight in (0.02, 0.25):
        rates = Acceptance(4, weight, None)
        rates.observe(1, Counter({(1, 1): 48, (1, 0): 12}))
        rates.observe(1, Counter({(1, 1): 20, (1, 0): 10}))
        learnt[weight] = rates.accept[0]
        assert rates.changes == 0
    assert learnt[0.25] < learnt[0.02]
