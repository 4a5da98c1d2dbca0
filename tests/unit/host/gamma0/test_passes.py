"""Passes of each step, and what a rest owes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_hust_vspec.host.gamma0.passes import DrafterPasses


def step(**tokens: int) -> Any:
    return SimpleNamespace(num_scheduled_tokens=tokens)


def test_a_drafter_in_step_runs_at_least_once() -> None:
    passes = DrafterPasses(True, None, False)
    assert [passes.of(step(a=1), gamma, True) for gamma in (0, 1, 3)] == [1, 1, 3]
    assert passes.owed({"a": 1}) == 0


def test_captured_passes_run_all() -> None:
    assert DrafterPasses(True, 4, False).of(step(a=1), 2, True) == 4


def test_a_look_up_runs_none() -> None:
    assert DrafterPasses(False, None, True).of(step(a=1), 3, True) == 0


def test_a_rest_adds_up_until_the_drafter_resumes() -> None:
    passes = DrafterPasses(True, None, True)
    assert passes.of(step(a=30), 0, False) == 1, "prompts before the first sample are not a rest"
    assert passes.of(step(a=1, b=5), 0, True) == 0
    assert passes.of(step(b=20), 0, False) == 0, "a rest goes on where nobody samples"
    assert passes.of(step(a=2), 0, True) == 0
    assert passes.owed({"a": 1, "b": 1}) == 28
    assert passes.owed({"a": 1}) == 3
    assert passes.of(step(a=1), 2, True) == 2
    assert passes.owed({"a": 1, "b": 1}) == 25
    passes.forget({"b"})
    assert passes.owed({"a": 1, "b": 1}) == 0
