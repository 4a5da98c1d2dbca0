"""Speculation with a gamma that changes at every step returns the target's own tokens."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import CASES
from engines import MAX_GAMMA, Engine, at_random, cycling, engine

SETUPS = {
    "draft_model-sync": ("target", "draft_model", "draft_noisy", False),
    "draft_model-async": ("target", "draft_model", "draft_noisy", True),
    "llama-draft_model-sync": ("llama", "draft_model", "llama_draft", False),
    "eagle-sync": ("target_soft", "eagle", "eagle", False),
    "eagle-async": ("target_soft", "eagle", "eagle", True),
    "eagle3-sync": ("target", "eagle3", "eagle3", False),
    "eagle3-async": ("target", "eagle3", "eagle3", True),
    "ngram-sync": ("target_soft", "ngram", None, False),
}
# Drafters without any skill still test every path; these must also be accepted, or the case shows little.
SKILLED = {"draft_model-sync", "draft_model-async", "llama-draft_model-sync", "eagle-sync", "eagle-async", "ngram-sync"}


# One engine start serves all the cases of a set-up. Two engines alive in one process break each other, so a run in
# several workers must keep a module's tests together (--dist loadscope).
@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest, models: Path, references: Any) -> Iterator[tuple[str, Engine, Any]]:
    target, method, drafter, asynchronous = SETUPS[request.param]
    expected = references(target)
    with engine(
        models / target,
        method=method,
        drafter=models / drafter if drafter else None,
        asynchronous=asynchronous,
        enable_prefix_caching=True,
        block_size=32,
    ) as started:
        assert type(started.scheduler).__name__ == ("AdaptiveAsyncScheduler" if asynchronous else "AdaptiveScheduler")
        yield request.param, started, expected


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("schedule", ["cycling", "random"])
def test_changing_gamma_keeps_tokens(setup: tuple[str, Engine, Any], case: str, schedule: str) -> None:
    name, started, expected = setup
    script = started.drive(cycling if schedule == "cycling" else at_random(len(case)))
    want = expected[case]
    assert CASES[case].run(started, want["prompts"]) == want["tokens"]
    if case not in ("greedy", "chunked-prefill", "many"):
        return
    decided = collections.Counter(outcome.gamma for outcome in script.outcomes)
    assert set(decided) == set(range(MAX_GAMMA + 1)), f"not every gamma was tried: {decided}"
    if name in SKILLED:
        assert script.acceptance > 0.05, f"nothing was accepted, so nothing was tested: {script.acceptance}"


def test_prefix_hits_keep_tokens(setup: tuple[str, Engine, Any]) -> None:
    _, started, expected = setup
    want = expected["chunked-prefill"]
    for seed in range(2):
        started.drive(at_random(seed))
        assert CASES["chunked-prefill"].run(started, want["prompts"]) == want["tokens"]
    assert started.scheduler.kv_cache_manager.prefix_cache_stats is not None


def test_every_decision_is_observed_once_and_in_order(setup: tuple[str, Engine, Any]) -> None:
    name, started, expected = setup
    script = started.drive(cycling)
    CASES["many"].run(started, expected["many"]["prompts"])
    # The asynchronous engine returns with its last step, scheduled before it knew that all had finished, in flight.
    in_flight = len(script.contexts) - len(script.outcomes)
    assert 0 <= in_flight <= (2 if name.endswith("-async") else 0)
    for context, outcome in zip(script.contexts, script.outcomes, strict=False):
        assert (context.num_decodes, context.num_prefill_tokens, context.verify_tokens) == (
            outcome.num_decodes,
            outcome.num_prefill_tokens,
            outcome.verify_tokens,
        )


def test_outcomes_add_up(setup: tuple[str, Engine, Any]) -> None:
    _, started, expected = setup
    script = started.drive(cycling)
    answers = CASES["many"].run(started, expected["many"]["prompts"])
    generated = sum(len(tokens) for answer in answers for tokens in answer or ())
    assert sum(outcome.committed_tokens for outcome in script.outcomes) == generated
    for outcome in script.outcomes:
        assert all(0 <= a <= p <= MAX_GAMMA for p, a in zip(outcome.proposed, outcome.accepted, strict=True))
        assert len(outcome.request_ids) == len(outcome.proposed)


def test_a_step_without_drafts_skips_the_rejection_sampler(setup: tuple[str, Engine, Any]) -> None:
    _, started, expected = setup
    calls = []
    hook = started.runner.rejection_sampler.register_forward_hook(lambda *_: calls.append(1))
    try:
        for gamma in (0, 2):
            calls.clear()
            script = started.drive(lambda step, gamma=gamma: gamma)  # type: ignore[misc]
            assert CASES["greedy"].run(started, expected["greedy"]["prompts"]) == expected["greedy"]["tokens"]
            drafts = [outcome for outcome in script.outcomes if sum(outcome.proposed)]
            assert (len(calls) > 0) == (gamma > 0)
            assert len(calls) == len(drafts) or gamma
    finally:
        hook.remove()
