"""What trace and state file add to the scheduler's path; printed, never asserted.

`add` is all that a traced step costs there; `line` is what the writer's thread then spends on it. A snapshot is taken
on the path at most twice a minute under load; writing it is the keeper's thread's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_hust_vspec.control import StepContext, StepOutcome, make_controller
from vllm_hust_vspec.host.state_file import StateFile
from vllm_hust_vspec.host.trace import Trace, line_of
from vllm_hust_vspec.settings import AdaptiveSettings


def outcome(requests: int, gamma: int = 4) -> StepOutcome:
    accepted = tuple(row % (gamma + 1) for row in range(requests))
    ids = tuple(f"request-{row}" for row in range(requests))
    return StepOutcome(
        gamma, requests, 0, 500 * requests, (gamma,) * requests, accepted, requests + sum(accepted), 0.031,
        requests * (gamma + 1), gamma, ids,
    )  # fmt: skip


def trained() -> Any:
    controller = make_controller(AdaptiveSettings(), max_gamma=4)
    for step in range(3000):
        batch = 1 + step * 7 % 256
        controller.decide(StepContext(batch, 0, 500 * batch, 8192))
        controller.observe(outcome(batch, 1 + step % 4))
    return controller


@pytest.mark.parametrize("requests", [1, 256])
def test_trace_add(benchmark: Any, tmp_path: Path, requests: int) -> None:
    trace = Trace(tmp_path / "t", {}, every_s=0.001)
    benchmark.pedantic(trace.add, args=(1.0, "hold", 900.0, outcome(requests)), rounds=2000)
    trace.close()


@pytest.mark.parametrize("requests", [1, 256])
def test_trace_line(benchmark: Any, requests: int) -> None:
    step = outcome(requests)
    benchmark(lambda: json.dumps(line_of(7, 12.5, "hold", 900.0, step), separators=(",", ":")))


def test_state_snapshot(benchmark: Any) -> None:
    benchmark(trained().snapshot)


def test_state_save(benchmark: Any, tmp_path: Path) -> None:
    file, snapshot = StateFile(tmp_path / "s.json", {"target": "t"}), trained().snapshot()
    benchmark(file.save, snapshot)
    print(f"state file: {(tmp_path / 's.json').stat().st_size} bytes")
