"""Relaxed acceptance on vLLM's own runner: every verdict is what the option's rule says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
from acceptance import SPECIALS, Target, check, recorded
from cases import CASES
from engines import MAX_GAMMA, Engine, at_random, engine

from vllm_hust_vspec.host import hooks
from vllm_hust_vspec.host.accept.rules import AmongBest, Rule, Strict, WithinMargin

MARGIN = {
    "HUST_VSPEC_CONFIDENCE_ACCEPT_MARGIN": "1.5",
    "HUST_VSPEC_CONFIDENCE_ACCEPT_FROM_POSITION": "1",
    "HUST_VSPEC_CONFIDENCE_ACCEPT_AFTER_TOKENS": "6",
}
TOPK = {"HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK": "3", "HUST_VSPEC_EAGLE_RELAXED_ACCEPT_AFTER_TOKENS": "5"}
SETUPS: dict[str, tuple[str, str, str, bool, dict[str, str], Rule]] = {
    "draft_model-sync": ("target", "draft_model", "draft_noisy", False, MARGIN, WithinMargin(1.5, 1, 6, ())),
    "eagle-async": ("target_soft", "eagle", "eagle", True, TOPK, AmongBest(3, 5)),
}
Running = tuple[Engine, Any, Rule, Target]


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest, models: Path, references: Any) -> Iterator[Running]:
    target, method, drafter, asynchronous, variables, rule = SETUPS[request.param]
    expected = references(target)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        hooks.settings.cache_clear()
        with engine(
            models / target, method=method, drafter=models / drafter, asynchronous=asynchronous, block_size=32
        ) as started:
            yield started, expected, rule, Target(models / target)
    hooks.settings.cache_clear()


def test_every_verdict_obeys_the_rule(setup: Running) -> None:
    started, expected, rule, target = setup
    verifier = started.runner.rejection_sampler.vspec
    assert verifier.rule == rule
    assert verifier.protected is None or set(verifier.protected.tolist()) == SPECIALS
    started.drive(lambda step: MAX_GAMMA)
    with recorded(started) as stories:
        CASES["greedy"].run(started, expected["greedy"]["prompts"])
    found = check(rule, list(stories.values()), target)
    assert not found.faults, f"{len(found.faults)} of {found.looked_at}: {found.faults[:3]}"
    assert found.beyond > 0, f"nothing was accepted that strict verification refuses, of {found.looked_at} drafts"


@pytest.mark.parametrize("case", ["greedy", "chunked-prefill", "several-completions"])
def test_strictly_it_gives_the_targets_tokens(setup: Running, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started, expected, _, _ = setup
    monkeypatch.setattr(started.runner.rejection_sampler.vspec, "rule", Strict())
    started.drive(at_random(3))
    assert CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]


def test_a_rule_that_the_server_cannot_keep_ends_it_before_a_model_loads(models: Path) -> None:
    ended = processes.run(
        f"""
        from vllm import LLM
        spec = {{"method": "eagle", "num_speculative_tokens": 4, "model": {str(models / "eagle")!r}}}
        LLM(model={str(models / "target_soft")!r}, dtype="float32", max_model_len=128, enforce_eager=True,
            speculative_config=spec)
        """,
        HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK="100000",
    )
    assert ended.code == 2, ended.err[-2000:]
    (line,) = (line for line in ended.err.splitlines() if line.startswith("vspec: "))
    assert "HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK=100000 exceeds the target's vocabulary of " in line
    assert "Starting to load model" not in ended.out + ended.err
