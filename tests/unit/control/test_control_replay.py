"""Resuming from gamma 0 has a price, which the controller learns and counts."""

from __future__ import annotations

import dataclasses

import pytest

from vllm_hust_vspec.control import StepContext, StepOutcome, make_controller
from vllm_hust_vspec.control.fit import Fit
from vllm_hust_vspec.control.replay import GUESS_TOKENS, ReplayPrice
from vllm_hust_vspec.settings import AdaptiveSettings

BATCH, STEP_S, PASS_S = 4, 0.020, 0.003


def test_the_price_is_what_replays_took() -> None:
    price, fit = ReplayPrice(), Fit()
    price.rest(1000)
    assert price.seconds(5000, fit) == 0.0, "a host that was never seen to replay is not expected to"
    price.observe(5000, 0.5, fit)
    price.resume()
    assert price.seconds(5000, fit) == 0.0
    price.rest(300)
    per_token = 0.5 / (1000 + GUESS_TOKENS)
    assert price.seconds(5000, fit) == pytest.approx(300 * per_token)
    assert price.seconds(200, fit) == pytest.approx(200 * per_token), "nobody owes more than is in KV"


def run(context: int, token_s: float, steps: int = 1500, *, rests: bool = True) -> tuple[int, float]:
    """Times that speculation resumed and the share of time spent in replays, where no draft is ever accepted."""
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=1)
    drafted = resumed = skipped = 0
    replays = seconds = 0.0
    for _ in range(steps):
        width = BATCH * (1 + drafted)
        gamma = controller.decide(StepContext(BATCH, 0, context, 4096, width)).gamma
        replay = min(skipped, context) * token_s + PASS_S if gamma and skipped and rests else 0.0
        resumed += replay > 0.0
        took = STEP_S + 0.0005 * width + PASS_S * gamma + replay
        controller.observe(
            StepOutcome(
                gamma=gamma,
                num_decodes=BATCH,
                num_prefill_tokens=0,
                context_tokens=context,
                proposed=(drafted,) * BATCH if drafted else (),
                accepted=(0,) * BATCH if drafted else (),
                committed_tokens=BATCH,
                interval_s=took,
                verify_tokens=width,
                draft_passes=gamma + (replay > 0.0),
                request_ids=("a", "b", "c", "d") if drafted else (),
            )
        )
        # A batch of many short requests: a rest of a few steps owes all of their KV.
        skipped = 0 if gamma else skipped + context // 4
        replays, seconds, drafted = replays + replay, seconds + took, gamma
    assert controller.snapshot()["state"]["counters"]["faults"] == 0
    return resumed, replays / seconds


def test_dear_replays_are_rare() -> None:
    cheap, share_of_cheap = run(400, 1e-6)
    dear, share_of_dear = run(4000, 1e-4)
    assert 0 < dear < cheap, "it must neither stay at 0 for ever nor resume as if it were free"
    assert share_of_cheap < 0.02
    assert share_of_dear < 0.04


def test_a_replay_says_nothing_of_its_gammas_step_time() -> None:
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=0)
    outcome = StepOutcome(0, 1, 0, 50, (), (), 1, 0.02, verify_tokens=1, draft_passes=0)
    controller.observe(outcome)
    before = controller.snapshot()["state"]
    controller.observe(dataclasses.replace(outcome, gamma=2, interval_s=2.0, draft_passes=3))
    after = controller.snapshot()["state"]
    assert after["time"] == before["time"]
    assert after["replay"] != before["replay"]


def test_passes_beyond_gamma_without_a_rest_are_no_replay() -> None:
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=0)
    controller.observe(StepOutcome(2, 1, 0, 50, (), (), 1, 0.02, verify_tokens=1, draft_passes=4))
    assert controller.snapshot()["state"]["counters"]["timed"] == 1
