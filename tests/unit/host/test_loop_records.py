"""The loop traces every decided step and keeps what its own controller learnt, nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

from vllm_hust_vspec.control import Decision
from vllm_hust_vspec.host.gamma_loop import GammaLoop
from vllm_hust_vspec.host.keeper import Keeper
from vllm_hust_vspec.host.state_file import StateFile
from vllm_hust_vspec.host.trace import Trace


class Counting:
    def __init__(self, faulty: bool = False) -> None:
        self.seen = 0
        self.faulty = faulty

    def decide(self, step: Any) -> Decision:
        return Decision(2, "climb", 123.5)

    def observe(self, outcome: Any) -> None:
        if self.faulty:
            raise RuntimeError("broken")
        self.seen += 1

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


class Host:
    def __init__(self, tmp_path: Path, **controller: Any) -> None:
        self.now = 5.0
        self.requests = {
            "a": Thing(num_tokens=11, num_computed_tokens=10, num_output_placeholders=0, num_stale_output_tokens=0,
                       is_finished=lambda: False)
        }  # fmt: skip
        self.loop = GammaLoop(
            method="draft_model", policy="online", max_gamma=4, token_budget=64,
            new_controller=lambda: Counting(**controller), clock=lambda: self.now,
        )  # fmt: skip
        self.loop.trace = Trace(tmp_path / "t", {})
        self.file = StateFile(tmp_path / "s", {"target": "t"})
        self.loop.remember(Keeper(self.file))

    def has_unfinished_requests(self) -> bool:
        return True

    def step(self, *, returns: bool = True) -> None:
        output = Thing(
            num_scheduled_tokens={"a": 3}, total_num_scheduled_tokens=3, scheduled_spec_decode_tokens={"a": [1, 2]},
            scheduled_new_reqs=[], scheduled_cached_reqs=Thing(resumed_req_ids=set()), num_invalid_spec_tokens=None,
            finished_req_ids=set(),
        )  # fmt: skip
        self.loop.decide(self, output)
        self.now += 0.5
        if returns:
            runner = Thing(sampled_token_ids=[[1, 7]], req_id_to_index={"a": 0})
            feedback = self.loop.begin_update(self, output, runner)
            assert feedback is not None
            self.loop.end_update(self, feedback, {0: Thing(outputs=[Thing(new_token_ids=[1, 7])])})

    def traced(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.loop.trace.path).read_text().splitlines()[1:]]  # type: ignore[union-attr]


def test_every_decided_step_is_traced_cancelled_and_pinned_ones_too(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.step()
    host.step(returns=False)
    host.step()
    host.loop.pin = 1
    host.step()
    host.loop.close()
    *steps, end = host.traced()
    assert [(s["gamma"], s["reason"], s["interval_s"]) for s in steps] == [
        (2, "climb", None), (2, "climb", None), (2, "climb", 1.0), (1, "pinned", 0.5),
    ]  # fmt: skip
    assert [s["drafts"] for s in steps] == [[[2, 1, 1]], [], [[2, 1, 1]], [[2, 1, 1]]]
    assert steps[0]["expected_goodput"] == 123.5
    assert (end["steps"], end["dropped"]) == (4, 0)


def test_the_state_at_the_end_is_in_the_file_and_the_next_loop_has_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(3):
        host.step()
    host.loop.close()
    host.loop.close()
    assert host.file.load() == {"seen": 3}
    again = Host(tmp_path)
    assert again.loop.counters()["controller"] == {"seen": 3}
    again.loop.close()


def test_neither_a_broken_controller_nor_a_borrowed_one_is_kept(tmp_path: Path) -> None:
    broken = Host(tmp_path, faulty=True)
    broken.step()
    broken.loop.close()
    assert broken.file.load() is None
    borrowed = Host(tmp_path)
    borrowed.loop.use(Counting)
    borrowed.step()
    borrowed.loop.close()
    assert borrowed.file.load() is None
