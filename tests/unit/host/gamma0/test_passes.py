"""Passes of each step."""

from __future__ import annotations

from vllm_hust_vspec.host.gamma0.passes import DrafterPasses


def test_a_drafter_in_step_runs_at_least_once() -> None:
    passes = DrafterPasses(True, None, False)
    assert [passes.of(gamma, True) for gamma in (0, 1, 3)] == [1, 1, 3]


def test_captured_passes_run_all() -> None:
    assert DrafterPasses(True, 4, False).of(2, True) == 4


def test_a_look_up_runs_none() -> None:
    assert DrafterPasses(False, None, True).of(3, True) == 0


def test_a_rest_ends_with_a_replay() -> None:
    passes = DrafterPasses(True, None, True)
    assert passes.of(0, False) == 1, "prompts before the first sample are not a rest"
    assert passes.of(0, True) == 0
    assert passes.of(0, False) == 0, "a rest goes on where nobody samples"
    assert passes.of(2, True) == 3
    assert passes.of(2, True) == 2
