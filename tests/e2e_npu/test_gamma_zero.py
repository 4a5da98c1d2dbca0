"""Gamma 0 keeps the drafter's KV whole: when speculation resumes, drafts are accepted as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, answers
from engines import MAX_GAMMA, Engine
from npu_engines import OPTIONS, Setup, counted_passes


def pausing(step: int) -> int:
    """Three steps off, three steps on."""
    return 0 if step % 6 < 3 else MAX_GAMMA


# A drafter that is the target itself: whatever it does not see, it guesses wrong.
@pytest.fixture(scope="module", params=["sync", "async"])
def itself(request: pytest.FixtureRequest, models: Path) -> Iterator[tuple[Engine, Any]]:
    expected = answers(models, "target", **OPTIONS)
    setup = Setup("target", "draft_model", "target", asynchronous=request.param == "async")
    with setup.start(models) as started:
        yield started, expected


@pytest.mark.parametrize("case", ["greedy", "chunked-prefill", "many"])
def test_acceptance_is_back_after_gamma_0(itself: tuple[Engine, Any], case: str) -> None:
    started, expected = itself
    script = started.drive(pausing)
    assert CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]
    assert {0, MAX_GAMMA} <= set(script.decided)
    assert script.acceptance >= 0.99, f"accepted {script.acceptance:.3f} of a drafter that is the target itself"


def test_one_pass_runs_where_nothing_is_drafted(itself: tuple[Engine, Any]) -> None:
    started, expected = itself
    script = started.drive(lambda step: 0)
    with counted_passes(started) as passes:
        assert CASES["greedy"].run(started, expected["greedy"]["prompts"]) == expected["greedy"]["tokens"]
    assert set(script.decided) == {0}
    assert passes.count == len(script.decided)
    assert sum(sum(outcome.proposed) for outcome in script.outcomes) == 0


def test_without_that_pass_acceptance_is_lost(itself: tuple[Engine, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started, expected = itself
    runner, script = started.runner, started.drive(pausing)
    draft = runner.drafter._propose

    def holed(*args: Any, **kwargs: Any) -> Any:
        """What the host would do by itself at gamma 0."""
        if script.decided[-1]:
            return draft(*args, **kwargs)
        import torch

        rows = kwargs["common_attn_metadata"].num_reqs
        columns = 0 if "num_speculative_tokens" in kwargs else 1
        return torch.zeros(rows, columns, dtype=torch.int64, device=runner.device)

    monkeypatch.setattr(runner.drafter, "_propose", holed)
    assert CASES["greedy"].run(started, expected["greedy"]["prompts"]) == expected["greedy"]["tokens"]
    assert script.acceptance < 0.9, "a hole in the drafter's KV goes unnoticed here"
