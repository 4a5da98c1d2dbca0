"""An engine's first steps are slow; what they say of the smallest gamma must not hold the controller at others."""

import math
import random

import pytest

from vllm_hust_vspec.control import StepContext, StepOutcome, make_controller
from vllm_hust_vspec.settings import AdaptiveSettings

PASS_S, TARGET_S, VERIFY_S = 0.012, 0.055, 0.006
COLD_STEPS = 3


def serve(slowness: float, seed: int) -> float:
    """One request: 30 steps of text that drafts well, then 250 that hardly does, after a slow start.

    Returns the tokens per second of those 250, as a share of what gamma 0 reaches.
    """
    controller = make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=4, seed=seed)
    chance = random.Random(seed)
    drafted = steps = 0
    tokens = seconds = 0.0
    for count, acceptance in ((30, 0.9), (250, 0.07)):
        tokens = seconds = 0.0
        for _ in range(count):
            width = 1 + drafted
            gamma = controller.decide(StepContext(1, 0, 200, 512, width)).gamma
            accepted = 0
            while accepted < drafted and chance.random() < acceptance:
                accepted += 1
            passes = max(gamma, 1)
            took = (TARGET_S + VERIFY_S * drafted + PASS_S * passes) * (1.0 + abs(chance.gauss(0.0, 0.08)))
            took *= slowness if steps < COLD_STEPS else 1.0
            controller.observe(
                StepOutcome(
                    gamma=gamma,
                    num_decodes=1,
                    num_prefill_tokens=0,
                    context_tokens=200,
                    proposed=(drafted,) if drafted else (),
                    accepted=(accepted,) if drafted else (),
                    committed_tokens=1 + accepted,
                    interval_s=took,
                    verify_tokens=width,
                    draft_passes=passes,
                    request_ids=("one",) if drafted else (),
                )
            )
            tokens, seconds, drafted, steps = tokens + 1 + accepted, seconds + took, gamma, steps + 1
    usual = 1.0 + 0.08 * math.sqrt(2.0 / math.pi)
    return tokens / seconds * (TARGET_S + PASS_S) * usual


@pytest.mark.parametrize("slowness", [1.0, 1.8, 3.0, 10.0])
def test_slow_first_steps_cost_little_later(slowness: float) -> None:
    shares = [serve(slowness, seed) for seed in range(6)]
    assert sum(shares) / len(shares) > 0.88
    assert min(shares) > 0.8
