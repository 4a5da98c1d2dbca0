"""Preemption under a small KV cache, with a changing gamma."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import CASES
from engines import at_random, engine


# vLLM refuses asynchronous scheduling with ngram drafting.
@pytest.mark.parametrize(
    ("method", "asynchronous"),
    [("draft_model", False), ("draft_model", True), ("eagle", False), ("eagle", True), ("ngram", False)],
)
def test_preempted_requests_keep_tokens(method: str, asynchronous: bool, models: Path, references: Any) -> None:
    target = "target" if method == "draft_model" else "target_soft"
    drafter = {"draft_model": models / "draft_noisy", "eagle": models / "eagle", "ngram": None}[method]
    want = references(target)["many"]
    with engine(
        models / target,
        method=method,
        drafter=drafter,
        asynchronous=asynchronous,
        block_size=32,
        num_gpu_blocks_override=10,
        max_model_len=160,
    ) as started:
        script = started.drive(at_random(3))
        assert CASES["many"].run(started, want["prompts"]) == want["tokens"]
        preemptions = sum(m.value for m in started.llm.get_metrics() if m.name == "vllm:num_preemptions")
    assert preemptions > 0
    for outcome in script.outcomes:
        assert all(0 <= a <= p for p, a in zip(outcome.proposed, outcome.accepted, strict=True))
