"""Preemption under a small KV cache on vLLM-Ascend, with a changing gamma."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import GROWING, answers
from engines import at_random
from npu_engines import OPTIONS, Setup

SETUPS = {
    "draft_model-sync": Setup("target", "draft_model", "draft_noisy"),
    "draft_model-async": Setup("target", "draft_model", "draft_noisy", True),
    "eagle-async": Setup("target_soft", "eagle", "eagle", True),
    "ngram-sync": Setup("target_soft", "ngram", None),
}


@pytest.mark.parametrize("name", SETUPS)
def test_preempted_requests_keep_tokens(name: str, models: Path, record_case: Any) -> None:
    setup = SETUPS[name]
    want = answers(models, setup.target, **OPTIONS)[GROWING.name]
    # Seven blocks of 128 tokens to use, and every request comes to need two.
    with setup.start(models, num_gpu_blocks_override=8, max_model_len=256) as started:
        script = started.drive(at_random(3))
        same = GROWING.run(started, want["prompts"]) == want["tokens"]
        preemptions = sum(m.value for m in started.llm.get_metrics() if m.name == "vllm:num_preemptions")
    record_case(
        method=setup.method,
        runner="V1",
        graph_mode="eager, preempted",
        scheduling=setup.scheduling,
        drafts=sum(sum(outcome.proposed) for outcome in script.outcomes),
        accepted=sum(sum(outcome.accepted) for outcome in script.outcomes),
        identical=same,
    )
    assert same
    assert preemptions > 0
    for outcome in script.outcomes:
        assert all(0 <= a <= p for p, a in zip(outcome.proposed, outcome.accepted, strict=True))
