"""Greedy verification on vLLM-Ascend: the target's own tokens, no read of the device, no fp32 copy of the logits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES, answers
from device_reads import DeviceReads
from engines import MAX_GAMMA, Engine, cycling
from npu_engines import OPTIONS, SETUPS, Setup

Running = tuple[Setup, Engine, Any]
PLAIN = ("greedy", "chunked-prefill", "many", "stop-strings")  # every request greedy, and nothing but tokens asked for
SCHEDULES: dict[str, Callable[[int], int]] = {"fixed": lambda step: MAX_GAMMA, "cycling": cycling}


@pytest.fixture(scope="module", params=["draft_model-sync", "draft_model-async", "eagle-sync", "eagle-async"])
def setup(request: pytest.FixtureRequest, models: Path, record_case: Any) -> Iterator[Running]:
    chosen = SETUPS[request.param]
    expected = answers(models, chosen.target, **OPTIONS)
    with chosen.start(models) as started:
        yield chosen, started, expected


def verifier(started: Engine) -> Any:
    return started.runner.rejection_sampler.vspec


@contextlib.contextmanager
def watched(started: Engine) -> Iterator[DeviceReads]:
    """Count operators in the runner's sampling of steps with drafts; fp32 results as wide as the vocabulary too."""
    runner, sample = started.runner, started.runner._sample
    counts = DeviceReads(wide_from=runner.model_config.get_vocab_size())

    def counted(logits: Any, metadata: Any) -> Any:
        with counts if metadata is not None else contextlib.nullcontext():
            return sample(logits, metadata)

    runner._sample = counted
    try:
        yield counts
    finally:
        del runner._sample


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", PLAIN)
def test_greedy_requests_are_verified_here_and_get_the_targets_tokens(setup: Running, case: str, schedule: str) -> None:
    _, started, expected = setup
    script, ours = started.drive(SCHEDULES[schedule]), verifier(started)
    verified, left = ours.verified, ours.left
    assert CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]
    assert ours.verified > verified, "no step was verified by vSpec"
    assert ours.left == left, "a plain greedy step was left to the host"
    assert script.acceptance > 0.05, f"nothing was accepted, so nothing was tested: {script.acceptance}"


@pytest.mark.parametrize("case", ["mixed-sampling", "several-completions"])
def test_other_requests_are_the_hosts(setup: Running, case: str) -> None:
    _, started, expected = setup
    started.drive(cycling)
    left = verifier(started).left
    assert CASES[case].run(started, expected[case]["prompts"]) == expected[case]["tokens"]
    assert verifier(started).left > left


@pytest.mark.parametrize("gamma", [1, MAX_GAMMA])
def test_the_host_is_never_made_to_wait(
    setup: Running, gamma: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen, started, expected = setup
    prompts, tokens = expected["greedy"]["prompts"], expected["greedy"]["tokens"]
    found = {}
    for path in ("vspec", "host", "host without Triton"):
        with monkeypatch.context() as changes, watched(started) as counts:
            if path != "vspec":
                changes.setattr(started.runner.rejection_sampler, "vspec", None)
            if path == "host without Triton":
                changes.setattr("vllm_ascend.sample.rejection_sampler.HAS_TRITON", False)
            started.drive(lambda step: gamma)
            assert CASES["greedy"].run(started, prompts) == tokens
        found[path] = counts
    with capsys.disabled():
        for path, counts in found.items():
            reads, wide = sum(counts.reads.values()), sum(counts.wide.values())
            print(
                f"\n{chosen.method} {chosen.scheduling} gamma {gamma}, {path}: {reads} reads, {wide} wide fp32, "
                f"{sum(counts.operators.values())} operators; {dict(counts.reads)} {dict(counts.wide)}",
                end="",
            )
    assert not found["vspec"].reads, f"reads of the device: {found['vspec'].reads}"
    assert not found["vspec"].wide, f"fp32 copies of the logits: {found['vspec'].wide}"
    assert found["host"].wide, "the host's own path makes no fp32 copy: what is counted?"


def test_what_counts_as_a_read() -> None:
    device, host = torch.arange(6, device="npu"), torch.arange(6)
    reading: list[Callable[[], Any]] = [
        lambda: device.cpu(),
        lambda: device[2].item(),
        lambda: device.tolist(),
        lambda: host.copy_(device),
        lambda: bool((device > 2).any()),
        lambda: device[device > 2],
        lambda: device.nonzero(),
        lambda: device.masked_select(device > 2),
        lambda: device.repeat_interleave(device),
    ]
    for number, read in enumerate(reading):
        with DeviceReads() as counts:
            read()
        assert sum(counts.reads.values()) == 1, f"number {number}: {counts.reads}"
    with DeviceReads() as counts:
        moved = host.to("npu")
        moved.copy_(host)
        device[moved].argmax()
        host.nonzero()
        device.repeat_interleave(device, output_size=15)
    assert not counts.reads
