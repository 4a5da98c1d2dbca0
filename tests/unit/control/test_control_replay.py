"""Resuming from gamma 0 has a price, which the controller learns and counts."""

from __future__ import annotations

import dataclasses

from vllm_hust_vspec.control import StepContext, StepOutcome, make_controller
from vllm_hust_vspec.control.fit import Fit
from vllm_hust_vspec.control.replay import ReplayPrice
from vllm_hust_vspec.settings import AdaptiveSettings

BATCH, STEP_S, TOKEN_S = 4, 0.020, 0.0001


def test_the_price_is_what_replays_took() -> None:
    price, fit = ReplayPrice(), Fit()
    price.observe(100, 0.05)
    assert price.seconds(200, fit) == 0.1
    price.observe(100, -1.0)
    assert abs(price.seconds(100, fit) - 0.035) < 1e-12
    assert price.seconds(0, fit) == 0.0


def run(owes: int, steps: int = 1500) -> tuple[int, float]:
    """Steps that resumed from gamma 0, and the share of time spent in replays, where no draft is ever accepted."""
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=1)
    drafted = resumed = 0
    replays = seconds = 0.0
    before = 0
    for number in range(steps):
        owed = owes if before == 0 and number > 20 else 0
        width = BATCH * (1 + drafted)
        context = StepContext(BATCH, 0, 400, 512, width, owed)
        gamma = controller.decide(context).gamma
        replay = owed * TOKEN_S if gamma else 0.0
        resumed += bool(gamma and owed)
        took = STEP_S + 0.0005 * width + 0.003 * gamma + replay
        outcome = StepOutcome(
            gamma=gamma,
            num_decodes=BATCH,
            num_prefill_tokens=0,
            context_tokens=400,
            proposed=(drafted,) * BATCH if drafted else (),
            accepted=(0,) * BATCH if drafted else (),
            committed_tokens=BATCH,
            interval_s=took,
            verify_tokens=width,
            draft_passes=gamma,
            request_ids=("a", "b", "c", "d") if drafted else (),
        )
        controller.observe(dataclasses.replace(outcome, owed_tokens=owed))
        replays, seconds, drafted, before = replays + replay, seconds + took, gamma, gamma
    return resumed, replays / seconds


def test_dear_replays_are_rare() -> None:
    cheap, share_of_cheap = run(owes=50)
    dear, share_of_dear = run(owes=4000)
    assert 0 < dear < cheap, "it must neither stay at 0 for ever nor resume as if it were free"
    assert share_of_cheap < 0.02
    assert share_of_dear < 0.04


def test_a_replay_says_nothing_of_its_gammas_step_time() -> None:
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=0)
    outcome = StepOutcome(2, 1, 0, 50, (), (), 1, 0.02, verify_tokens=1, draft_passes=2)
    controller.observe(outcome)
    timed = controller.snapshot()["state"]["counters"]["timed"]
    before = controller.snapshot()["state"]["time"]
    controller.observe(dataclasses.replace(outcome, interval_s=2.0, owed_tokens=900))
    assert controller.snapshot()["state"]["time"] == before
    assert controller.snapshot()["state"]["replay"] is not None
    assert controller.snapshot()["state"]["counters"]["timed"] == timed + 1
