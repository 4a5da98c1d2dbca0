"""The host itself: real vLLM-Ascend on the emulated device, without any speculation."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest
import torch
from answers import References
from engines import Engine, engine

LENGTHS = (5, 40, 17)


@pytest.fixture(scope="module")
def target(models: Path) -> Iterator[Engine]:
    with engine(models / "target", block_size=128, kv_cache_memory_bytes=64 << 20) as started:
        yield started


def test_the_target_alone_gives_hugging_faces_tokens(target: Engine, references: References, record_case: Any) -> None:
    from vllm import SamplingParams

    expected = references("target", LENGTHS)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    tokens = [completions[0] for completions in target.generate(expected.prompts, params)]
    record_case(
        method="target-only",
        runner="V1",
        graph_mode="eager",
        scheduling="sync",
        drafts=0,
        accepted=0,
        identical=tokens == expected.tokens,
    )
    assert tokens == expected.tokens


def test_the_model_lies_on_the_device_and_vllm_ascend_runs_it(target: Engine) -> None:
    devices = {parameter.device.type for parameter in target.runner.model.parameters()}
    assert devices == {"npu"}
    assert type(target.runner).__module__.startswith("vllm_ascend.")


def test_vllms_cpu_platform_stays_away() -> None:
    assert version("vllm").endswith("+empty")
    from vllm.platforms import current_platform

    assert type(current_platform).__module__ == "vllm_ascend.platform"
    assert {point.name for point in entry_points(group="vllm.platform_plugins")} == {"ascend"}


def test_torch_finds_the_device_without_being_told() -> None:
    assert torch.npu.is_available()
    assert torch.zeros(2, device="npu").device.type == "npu"
