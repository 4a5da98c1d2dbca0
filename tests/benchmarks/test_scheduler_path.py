"""What vSpec adds to the scheduler's path at every step: reading the step, deciding, and feeding back.

Printed, never asserted. The host's objects are stand-ins of the same shape, so the host's own work is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.control import make_controller
from vllm_hust_vspec.host.gamma_loop import GammaLoop
from vllm_hust_vspec.settings import AdaptiveSettings

GAMMA = 3


class Bench:
    def __init__(self, requests: int) -> None:
        self.now = 0.0
        self.requests = {
            f"request-{number}": Thing(
                num_tokens=101,
                num_computed_tokens=100,
                num_output_placeholders=0,
                num_stale_output_tokens=0,
                is_finished=lambda: False,
            )
            for number in range(requests)
        }
        self.loop = GammaLoop(
            method="draft_model",
            policy="online",
            max_gamma=4,
            token_budget=8192,
            new_controller=lambda: make_controller(AdaptiveSettings(), max_gamma=4),
            clock=lambda: self.now,
        )
        self.index = {name: row for row, name in enumerate(self.requests)}
        self.tokens = [[7, 7]] * requests
        self.engine_outputs = {0: Thing(outputs=[Thing(new_token_ids=[7, 7]) for _ in range(requests)])}

    def has_unfinished_requests(self) -> bool:
        return True

    def output(self) -> Any:
        return Thing(
            num_scheduled_tokens=dict.fromkeys(self.requests, 1 + GAMMA),
            total_num_scheduled_tokens=len(self.requests) * (1 + GAMMA),
            scheduled_spec_decode_tokens={name: [5] * GAMMA for name in self.requests},
            scheduled_new_reqs=[],
            scheduled_cached_reqs=Thing(resumed_req_ids=set()),
            num_invalid_spec_tokens=None,
            finished_req_ids=set(),
        )

    def feed_back(self, output: Any) -> None:
        self.now += 0.02
        runner = Thing(sampled_token_ids=self.tokens, req_id_to_index=self.index)
        feedback = self.loop.begin_update(self, output, runner)
        assert feedback is not None
        self.loop.end_update(self, feedback, self.engine_outputs)


@pytest.fixture(params=[1, 32, 256], ids=lambda requests: f"{requests}-requests")
def bench(request: pytest.FixtureRequest) -> Bench:
    warm = Bench(request.param)
    for _ in range(300):
        output = warm.output()
        warm.loop.decide(warm, output)
        warm.feed_back(output)
    return warm


def test_decide(bench: Bench, benchmark: Callable[..., Any]) -> None:
    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        output = bench.output()
        # Steps are fed back outside of the timing, so that none piles up.
        while bench.loop._pending:
            bench.feed_back(bench.loop._pending[0].output)
        return (bench, output), {}

    benchmark.pedantic(bench.loop.decide, setup=setup, rounds=500)  # type: ignore[attr-defined]


def test_feed_back(bench: Bench, benchmark: Callable[..., Any]) -> None:
    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        output = bench.output()
        bench.loop.decide(bench, output)
        return (output,), {}

    benchmark.pedantic(bench.feed_back, setup=setup, rounds=500)  # type: ignore[attr-defined]
