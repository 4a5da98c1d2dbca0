"""vLLM-Ascend with a gamma that changes at every step returns the target's own tokens, at the width that was asked."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, answers
from engines import MAX_GAMMA, Engine, Scripted, at_random, cycling
from npu_engines import EVERY_CASE, OPTIONS, SETUPS, WIDTH_CASES, Setup, Tally, counted_passes

from vllm_hust_vspec.host.patches import REGISTRY

Running = tuple[Setup, Engine, Any, Tally]


# One engine start serves all the cases of a set-up.
@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest, models: Path, record_case: Any) -> Iterator[Running]:
    chosen = SETUPS[request.param]
    expected = answers(models, chosen.target, **OPTIONS)
    tally = Tally()
    with chosen.start(models, enable_prefix_caching=True) as started:
        yield chosen, started, expected, tally
    record_case(
        method=chosen.method,
        runner="V1",
        graph_mode=chosen.graph or "eager",
        scheduling=chosen.scheduling,
        drafts=tally.drafts,
        accepted=tally.accepted,
        identical=not tally.wrong,
    )


def _run(setup: Running, case: str, schedule: Any) -> Scripted:
    _, started, expected, tally = setup
    script = started.drive(schedule)
    tally.wrong.append(case)  # until it is known to be right
    same = CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]
    assert same, f"{case}: not the target's tokens"
    tally.wrong.pop()
    tally.drafts += sum(sum(outcome.proposed) for outcome in script.outcomes)
    tally.accepted += sum(sum(outcome.accepted) for outcome in script.outcomes)
    return script


@pytest.mark.parametrize("case", EVERY_CASE)
@pytest.mark.parametrize("schedule", ["cycling", "random"])
def test_changing_gamma_keeps_tokens(setup: Running, case: str, schedule: str) -> None:
    chosen = setup[0]
    if case not in chosen.cases:
        pytest.skip("covered by the eager set-up of this method")
    script = _run(setup, case, cycling if schedule == "cycling" else at_random(len(case)))
    if case not in WIDTH_CASES:
        return
    tried = collections.Counter(script.decided)
    assert set(tried) == set(range(MAX_GAMMA + 1)), f"not every gamma was tried: {tried}"
    if chosen.skilled:
        assert script.acceptance > 0.05, f"nothing was accepted, so nothing was tested: {script.acceptance}"


@pytest.mark.parametrize("case", ["greedy", "many"])
def test_each_step_verifies_what_the_step_before_was_asked_for(setup: Running, case: str) -> None:
    chosen = setup[0]
    script = _run(setup, case, at_random(5))
    for asked, outcome in zip(script.decided, script.outcomes[1:], strict=False):
        widths = set(outcome.proposed)
        if chosen.method == "ngram":
            assert all(width <= asked for width in widths), f"asked for {asked}, verified {widths}"
        else:
            assert widths <= {asked}, f"asked for {asked}, verified {widths}"
    verified = {width for outcome in script.outcomes for width in outcome.proposed}
    assert verified >= set(range(1, MAX_GAMMA + 1)), f"widths that were verified: {verified}"


def test_the_drafter_runs_as_often_as_it_is_asked(setup: Running) -> None:
    chosen, started, _, _ = setup
    if chosen.method == "ngram":
        pytest.skip("a look-up runs no model")
    if chosen.captured_drafter:
        pytest.skip("its passes are one graph")
    with counted_passes(started) as passes:
        for schedule in (cycling, at_random(9)):
            passes.clear()
            script = _run(setup, "greedy", schedule)
            # The pass at gamma 0 keeps the drafter's KV whole.
            assert passes.count == sum(max(gamma, 1) for gamma in script.decided)


def test_outcomes_say_how_often_the_drafter_ran(setup: Running) -> None:
    chosen = setup[0]
    script = _run(setup, "greedy", cycling)
    for gamma, outcome in zip(script.decided, script.outcomes, strict=False):
        passes = MAX_GAMMA if chosen.captured_drafter else max(gamma, 1)
        assert outcome.draft_passes == (0 if chosen.method == "ngram" else passes)


def test_prefix_hits_keep_tokens(setup: Running) -> None:
    for seed in range(2):
        _run(setup, "chunked-prefill", at_random(seed))
    hits = setup[1].scheduler.kv_cache_manager.prefix_cache_stats
    assert hits is not None


def test_the_hosts_own_scheduler_is_the_one_extended(setup: Running) -> None:
    chosen, started, _, _ = setup
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    resolved = AsyncScheduler if chosen.asynchronous else Scheduler
    assert type(started.scheduler).__name__ == f"Adaptive{resolved.__name__}"
    assert isinstance(started.scheduler, resolved)


def test_patches_are_in_force_after_the_hosts_own(setup: Running) -> None:
    REGISTRY.verify([applied.patch for applied in REGISTRY.applied.values()])
    assert ("ascend-draft-width" in REGISTRY.applied) != ("ascend-draft-ends" in REGISTRY.applied)
