"""A draft model that rests at gamma 0 costs no pass there, and drafts as well as before when it resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, answers
from engines import MAX_GAMMA, Engine, Scripted, at_random, engine

OPTIONS = {"enable_prefix_caching": True, "block_size": 32}


def pausing(step: int) -> int:
    """Three steps off, three steps on."""
    return 0 if step % 6 < 3 else MAX_GAMMA


def long_pauses(step: int) -> int:
    """Off long enough for whole prompts and blocks to be missed."""
    return 0 if step % 30 < 22 else 1 + step % MAX_GAMMA


# A drafter that is the target itself: whatever it does not see, it guesses wrong.
@pytest.fixture(scope="module", params=["sync", "async"])
def itself(request: pytest.FixtureRequest, models: Path) -> Iterator[tuple[Engine, Any]]:
    expected = answers(models, "target", **OPTIONS)
    with engine(
        models / "target",
        method="draft_model",
        drafter=models / "target",
        asynchronous=request.param == "async",
        **OPTIONS,
    ) as started:
        yield started, expected


@pytest.mark.parametrize("schedule", [pausing, long_pauses, at_random(3)], ids=["pausing", "long", "random"])
@pytest.mark.parametrize("case", ["greedy", "chunked-prefill", "many"])
def test_acceptance_is_back_after_a_rest(itself: tuple[Engine, Any], case: str, schedule: Callable[[int], int]) -> None:
    started, expected = itself
    before = _account(started)
    script = started.drive(schedule)
    assert CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]
    assert {0, MAX_GAMMA} <= set(script.decided)
    assert _account(started)[0] > before[0], "nothing was replayed, so nothing was tested"
    assert script.acceptance >= 0.99, f"accepted {script.acceptance:.3f} of a drafter that is the target itself"


def test_a_prefix_that_was_computed_in_a_rest_is_replayed_for_who_hits_it(itself: tuple[Engine, Any]) -> None:
    started, expected = itself
    want = expected["chunked-prefill"]
    started.llm.reset_prefix_cache()
    resting = started.drive(lambda step: 0)
    assert CASES["chunked-prefill"].run(started, want["prompts"]) == want["tokens"]
    before = _account(started)[0]
    script = started.drive(lambda step: MAX_GAMMA)
    assert CASES["chunked-prefill"].run(started, want["prompts"]) == want["tokens"]
    assert _prefilled(script) < 0.5 * _prefilled(resting), "no prefix was hit, so nothing was tested"
    assert _account(started)[0] > before
    assert script.acceptance >= 0.99


def test_a_resting_drafter_runs_no_pass(itself: tuple[Engine, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started, expected = itself
    drafter, calls = started.runner.drafter, []
    forward = drafter.model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(kwargs["input_ids"]))
        return forward(*args, **kwargs)

    monkeypatch.setattr(drafter.model, "forward", counted)
    started.drive(lambda step: 1)
    CASES["greedy"].run(started, expected["greedy"]["prompts"])
    assert calls
    script = started.drive(lambda step: 0)
    _settle(started)
    calls.clear()
    assert CASES["greedy"].run(started, expected["greedy"]["prompts"]) == expected["greedy"]["tokens"]
    # What comes before the first request samples is prefill, with which the drafter goes on as it was.
    assert len(calls) <= 1
    assert {outcome.draft_passes for outcome in script.outcomes if outcome.num_decodes} == {0}


def test_the_controller_is_told_of_rests_and_replays(itself: tuple[Engine, Any]) -> None:
    started, expected = itself
    script = started.drive(lambda step: 0 if step < 12 else 2)
    CASES["greedy"].run(started, expected["greedy"]["prompts"])
    passes = [outcome.draft_passes for outcome in script.outcomes if outcome.num_decodes]
    resumed = passes.index(3)
    assert set(passes[:resumed]) == {0}
    assert set(passes[resumed + 1 :]) == {2}


def _account(started: Engine) -> tuple[int, int]:
    kv = getattr(started.runner.drafter, "vspec_kv", None)  # made at the first step
    return (kv.replayed_tokens, kv.replay_passes) if kv is not None else (0, 0)


def _prefilled(script: Scripted) -> int:
    return sum(context.num_prefill_tokens for context in script.contexts)


def _settle(started: Engine) -> None:
    """Let the drafter rest, by a request of its own."""
    from vllm import SamplingParams

    started.generate([[5, 6, 7]], SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
