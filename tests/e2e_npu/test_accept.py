"""Greedy verification on vLLM-Ascend: the target's own tokens, no read of the device, no fp32 copy of the logits."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from itertools import accumulate
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


def metadata_of(drafts: list[list[int]]) -> Any:
    """What the runner makes of these drafts: each request's rows of logits, its bonus row last."""
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    counts = [len(request) for request in drafts]
    ends, bonus = list(accumulate(counts)), [end - 1 for end in accumulate(count + 1 for count in counts)]
    targets = [row for row in range(bonus[-1]) if row not in bonus]

    def device(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device="npu")

    return SpecDecodeMetadata(
        draft_token_ids=device([token for request in drafts for token in request]),
        num_draft_tokens=counts,
        cu_num_draft_tokens=device(ends),
        cu_num_sampled_tokens=device([row + 1 for row in bonus]),
        target_logits_indices=device(targets),
        bonus_logits_indices=device(bonus),
        logits_indices=device(list(range(bonus[-1] + 1))),
    )


def plain_sampling() -> Any:
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    none = torch.empty(0, device="npu")
    return SamplingMetadata(
        temperature=None,
        all_greedy=True,
        all_random=False,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


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
            figures = (
                f"{counts.reads.total()} reads of the device, {counts.wide.total()} fp32 tensors as wide as logits"
            )
            print(f"\n{chosen.method}, {chosen.scheduling}, gamma {gamma}, {path}: {figures}", end="")
    assert not found["vspec"].reads, f"reads of the device: {found['vspec'].reads}"
    assert not found["vspec"].wide, f"fp32 copies of the logits: {found['vspec'].wide}"
    assert found["host"].wide, "the host's own path makes no fp32 copy: what is counted?"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("triton", [True, False])
def test_any_batch_gets_what_the_hosts_own_sampler_returns(
    setup: Running, dtype: torch.dtype, triton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up batches with many ties, drafts that are no tokens, and requests without drafts."""
    sampler, ours = setup[1].runner.rejection_sampler, verifier(setup[1])
    monkeypatch.setattr("vllm_ascend.sample.rejection_sampler.HAS_TRITON", triton)
    draw = random.Random(f"{dtype}-{triton}")
    for _ in range(10):
        drafts = [[draw.randrange(-1, 4) for _ in range(draw.randrange(5))] for _ in range(draw.randrange(1, 7))]
        metadata = metadata_of([[draw.randrange(4)], *drafts])
        logits = torch.tensor(
            [[draw.choice((-1.0, 0.0, 2.0, 2.0)) for _ in range(4)] for _ in metadata.logits_indices],
            dtype=dtype,
            device="npu",
        )
        tokens = []
        for path in (ours, None):
            monkeypatch.setattr(sampler, "vspec", path)
            with torch.inference_mode():
                tokens.append(sampler(metadata, None, logits.clone(), plain_sampling()).sampled_token_ids)
        assert tokens[0].dtype == tokens[1].dtype
        assert tokens[0].tolist() == tokens[1].tolist(), f"drafts {drafts}, logits {logits.tolist()}"


@pytest.mark.parametrize("inference", [False, True])
def test_what_counts_as_a_read(inference: bool) -> None:
    device, host = torch.arange(6, device="npu"), torch.arange(6)
    reading: list[Callable[[], Any]] = [
        lambda: device.cpu(),
        lambda: device[2].item(),
        lambda: device.tolist(),
        lambda: host.copy_(device),
        lambda: bool((device > 2).any()),
        lambda: device[device > 2],
        lambda: device.nonzero(),
        lambda: torch.where(device > 2),
        lambda: device.to("cpu", non_blocking=True),
        lambda: device.masked_select(device > 2),
        lambda: device.repeat_interleave(device),
    ]
    for number, read in enumerate(reading):
        with torch.inference_mode(inference), DeviceReads() as counts:
            read()
        assert sum(counts.reads.values()) == 1, f"number {number}: {counts.reads}"
    with torch.inference_mode(inference), DeviceReads() as counts:
        moved = host.to("npu")
        moved.copy_(host)
        device[moved].argmax()
        host.nonzero()
        device.repeat_interleave(device, output_size=15)
    assert not counts.reads
