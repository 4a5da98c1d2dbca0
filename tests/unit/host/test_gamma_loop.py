"""One decision and one outcome a step, in order, with the right numbers in them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.control import Decision, StepContext, StepOutcome
from vllm_hust_vspec.host.gamma_loop import GammaLoop


class Recorder:
    def __init__(self, gammas: list[int]) -> None:
        self.gammas = gammas
        self.contexts: list[StepContext] = []
        self.outcomes: list[StepOutcome] = []

    def decide(self, step: StepContext) -> Decision:
        self.contexts.append(step)
        return Decision(self.gammas[(len(self.contexts) - 1) % len(self.gammas)], "scripted")

    def observe(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)

    def snapshot(self) -> dict[str, Any]:
        return {"seen": len(self.outcomes)}

    def restore(self, state: Mapping[str, Any]) -> None: ...


class Host:
    """As much of a scheduler as the loop reads, with a clock that the test moves."""

    def __init__(self, gammas: list[int], method: str = "draft_model", all_passes: bool = False) -> None:
        self.now = 100.0
        self.requests: dict[str, Any] = {}
        self.controller = Recorder(gammas)
        self.loop = GammaLoop(
            method=method,
            policy="online",
            max_gamma=4,
            token_budget=256,
            new_controller=lambda: self.controller,
            clock=lambda: self.now,
            all_passes=all_passes,
        )

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def add(self, name: str, *, tokens: int, computed: int) -> None:
        self.requests[name] = Thing(
            num_tokens=tokens,
            num_computed_tokens=computed,
            num_output_placeholders=0,
            num_stale_output_tokens=0,
            is_finished=lambda: False,
        )

    def schedule(
        self,
        scheduled: dict[str, int],
        drafts: dict[str, list[int]] | None = None,
        new: tuple[str, ...] = (),
        resumed: tuple[str, ...] = (),
        finished: tuple[str, ...] = (),
    ) -> Any:
        output = Thing(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_spec_decode_tokens=drafts or {},
            scheduled_new_reqs=[Thing(req_id=name) for name in new],
            scheduled_cached_reqs=Thing(resumed_req_ids=set(resumed)),
            num_invalid_spec_tokens=None,
            finished_req_ids=set(finished),
        )
        output.gamma = self.loop.decide(self, output)
        return output

    def finish(self, output: Any, sampled: dict[str, int], seconds: float = 0.01, kept: int | None = None) -> None:
        self.now += seconds
        names = list(sampled)
        runner = Thing(
            sampled_token_ids=[[7] * sampled[name] for name in names],
            req_id_to_index={name: row for row, name in enumerate(names)},
        )
        feedback = self.loop.begin_update(self, output, runner)
        assert feedback is not None
        tokens = sum(sampled.values()) if kept is None else kept
        self.loop.end_update(self, feedback, {0: Thing(outputs=[Thing(new_token_ids=[7] * tokens)])})

    @property
    def outcome(self) -> StepOutcome:
        return self.controller.outcomes[-1]


def test_a_prefill_then_a_verification() -> None:
    host = Host([3, 1])
    host.add("a", tokens=10, computed=0)
    first = host.schedule({"a": 10}, new=("a",))
    assert host.controller.contexts[-1] == StepContext(1, 10, 0, 256, 0)
    host.finish(first, {"a": 1})
    assert host.outcome == StepOutcome(3, 1, 10, 0, (), (), 1, None, 0, 3, ())
    host.requests["a"].num_computed_tokens, host.requests["a"].num_tokens = 10, 11
    second = host.schedule({"a": 4}, {"a": [5, 6, 7]})
    assert host.controller.contexts[-1] == StepContext(1, 0, 10, 256, 4)
    host.finish(second, {"a": 3}, seconds=0.02)
    assert host.outcome.proposed == (3,)
    assert host.outcome.accepted == (2,)
    assert host.outcome.request_ids == ("a",)
    assert host.outcome.interval_s == pytest.approx(0.02)
    assert (second.gamma, host.outcome.gamma) == (1, 1)


def test_a_chunk_that_ends_no_prompt_drafts_nothing_and_counts_as_prefill() -> None:
    host = Host([4])
    host.add("a", tokens=100, computed=0)
    output = host.schedule({"a": 64}, new=("a",))
    assert output.gamma == 0
    assert host.controller.contexts[-1] == StepContext(0, 64, 0, 256, 0)
    assert not host.loop.gamma_histogram
    host.finish(output, {"a": 0})
    assert host.outcome.gamma == 0
    assert host.outcome.draft_passes == 1


def test_padding_of_a_joining_or_resumed_request_is_not_a_draft() -> None:
    host = Host([2])
    host.add("a", tokens=11, computed=10)
    host.add("b", tokens=11, computed=10)
    output = host.schedule({"a": 3, "b": 3}, {"a": [-1, -1], "b": [-1, -1]}, new=("a",), resumed=("b",))
    assert host.controller.contexts[-1].verify_tokens == 6
    host.finish(output, {"a": 1, "b": 1})
    assert host.outcome.proposed == ()


def test_a_drafter_that_offered_nothing_is_an_entry_of_zero() -> None:
    host = Host([3, 3, 0, 3], method="ngram")
    host.add("a", tokens=11, computed=10)
    host.finish(host.schedule({"a": 1}), {"a": 1})
    assert host.outcome.proposed == ()  # nobody asked it to draft for this step
    host.finish(host.schedule({"a": 1}), {"a": 1})
    assert (host.outcome.proposed, host.outcome.accepted) == ((0,), (0,))
    host.finish(host.schedule({"a": 2}, {"a": [5]}), {"a": 2})
    assert (host.outcome.proposed, host.outcome.accepted, host.outcome.draft_passes) == ((1,), (1,), 0)
    host.finish(host.schedule({"a": 1}), {"a": 1})
    assert host.outcome.proposed == ()  # gamma was 0 in the step before


def test_drafts_that_a_grammar_forbade_are_not_counted() -> None:
    host = Host([3])
    host.add("a", tokens=11, computed=10)
    output = host.schedule({"a": 4}, {"a": [5, -1, -1]})
    output.num_invalid_spec_tokens = {"a": 2}
    host.finish(output, {"a": 2})
    assert (host.outcome.proposed, host.outcome.accepted) == ((1,), (1,))


def test_stale_and_finished_requests_are_skipped() -> None:
    host = Host([2])
    for name in ("stale", "done", "gone", "fine"):
        host.add(name, tokens=11, computed=10)
    output = host.schedule(dict.fromkeys(host.requests, 3), {n: [5, 6] for n in host.requests})
    host.requests["stale"].num_stale_output_tokens = 3
    host.requests["done"].is_finished = lambda: True
    del host.requests["gone"]
    host.finish(output, {"stale": 3, "done": 3, "gone": 3, "fine": 3})
    assert host.outcome.request_ids == ("fine",)


def test_two_steps_in_flight_are_observed_in_order() -> None:
    host = Host([1, 2])
    host.add("a", tokens=11, computed=10)
    first = host.schedule({"a": 1})
    second = host.schedule({"a": 2}, {"a": [-1]})
    host.finish(first, {"a": 1})
    host.finish(second, {"a": 2})
    assert [outcome.gamma for outcome in host.controller.outcomes] == [1, 2]
    assert host.controller.outcomes[1].interval_s == pytest.approx(0.01)


def test_a_cancelled_step_is_observed_without_a_time() -> None:
    host = Host([1, 2])
    host.add("a", tokens=11, computed=10)
    host.schedule({"a": 1})
    host.finish(host.schedule({"a": 2}, {"a": [-1]}), {"a": 2})
    assert [(o.gamma, o.interval_s) for o in host.controller.outcomes] == [(1, None), (2, None)]


def test_an_output_that_was_never_decided_changes_nothing() -> None:
    host = Host([1])
    host.add("a", tokens=11, computed=10)
    output = host.schedule({"a": 1})
    assert host.loop.begin_update(host, Thing(), Thing()) is None
    host.finish(output, {"a": 1})
    assert len(host.controller.outcomes) == 1


def test_the_first_interval_after_idleness_is_none() -> None:
    host = Host([1])
    host.add("a", tokens=11, computed=10)
    host.finish(host.schedule({"a": 1}), {"a": 1})
    request = host.requests.pop("a")
    host.requests["b"] = request
    host.finish(host.schedule({"b": 1}), {"b": 1})
    assert host.outcome.interval_s == pytest.approx(0.01)
    output = host.schedule({"b": 1})
    del host.requests["b"]
    host.finish(output, {"b": 1})
    host.now += 60
    host.add("c", tokens=11, computed=10)
    host.finish(host.schedule({"c": 1}), {"c": 1})
    assert host.outcome.interval_s is None


def test_an_empty_schedule_makes_the_next_interval_none() -> None:
    host = Host([1])
    host.add("a", tokens=11, computed=10)
    host.finish(host.schedule({"a": 1}), {"a": 1})
    host.loop.skip()
    host.finish(host.schedule({"a": 1}), {"a": 1}, seconds=5)
    assert host.outcome.interval_s is None


def test_pinned_steps_are_not_shown_to_the_controller() -> None:
    host = Host([1])
    host.add("a", tokens=11, computed=10)
    host.loop.pin = 4
    output = host.schedule({"a": 1})
    assert output.gamma == 4
    host.loop.pin = None
    host.finish(output, {"a": 1})
    assert host.controller.contexts == []
    assert host.controller.outcomes == []
    assert host.loop.counters()["gamma_histogram"] == {"4": 1}


def test_a_reset_controller_sees_only_what_it_decided() -> None:
    host = Host([1])
    host.add("a", tokens=11, computed=10)
    output = host.schedule({"a": 1})
    fresh = Recorder([2])
    host.loop.use(lambda: fresh)
    host.finish(output, {"a": 1})
    assert fresh.outcomes == []
    host.finish(host.schedule({"a": 2}, {"a": [3]}), {"a": 1})
    assert [outcome.gamma for outcome in fresh.outcomes] == [2]


@pytest.mark.parametrize("where", ["decide", "observe"])
def test_a_broken_controller_pins_gamma_and_serving_goes_on(where: str, caplog: pytest.LogCaptureFixture) -> None:
    host = Host([3])
    host.add("a", tokens=11, computed=10)
    host.finish(host.schedule({"a": 1}), {"a": 1})

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    setattr(host.controller, where, broken)
    with caplog.at_level(logging.ERROR, "vllm.vspec"):
        for _ in range(3):
            host.finish(host.schedule({"a": 4}, {"a": [1, 2, 3]}), {"a": 1})
    counters = host.loop.counters()
    assert (counters["faults"], counters["gamma"], counters["pin"]) == (1, 3, 3)
    assert len(caplog.records) == 1


def test_a_gamma_out_of_bounds_is_brought_back() -> None:
    host = Host([99, -5])
    host.add("a", tokens=11, computed=10)
    assert host.schedule({"a": 1}).gamma == 4
    assert host.schedule({"a": 1}).gamma == 0


def test_counters_add_up() -> None:
    host = Host([2, 0])
    host.add("a", tokens=11, computed=10)
    for drafts in ([], [5, 6], [], [5, 6]):
        host.finish(host.schedule({"a": 1 + len(drafts)}, {"a": drafts} if drafts else {}), {"a": 1 + len(drafts)})
    counters = host.loop.counters()
    assert counters["gamma_histogram"] == {"0": 2, "2": 2}
    assert (counters["steps"], counters["proposed"], counters["accepted"], counters["verifications"]) == (4, 4, 4, 2)
    assert (counters["committed_tokens"], counters["switches"]) == (8, 4)
    assert counters["controller"] == {"seen": 4}


@pytest.mark.parametrize(
    ("method", "all_passes", "passes"),
    [("eagle", False, [1, 1, 2, 4]), ("eagle", True, [4, 4, 4, 4]), ("ngram", False, [0, 0, 0, 0])],
)
def test_outcomes_say_how_often_the_drafter_ran(method: str, all_passes: bool, passes: list[int]) -> None:
    host = Host([0, 1, 2, 4], method=method, all_passes=all_passes)
    host.add("a", tokens=11, computed=10)
    for _ in range(4):
        host.finish(host.schedule({"a": 1}), {"a": 1})
    assert [outcome.draft_passes for outcome in host.controller.outcomes] == passes


def test_memory_does_not_grow_with_requests() -> None:
    host = Host([2])
    for number in range(500):
        name = f"r{number}"
        host.add(name, tokens=11, computed=10)
        last = f"r{number - 1}"
        host.requests.pop(last, None)
        host.finish(host.schedule({name: 1}, finished=(last,)), {name: 1})
    assert len(host.loop._asked) <= 1
    assert len(host.loop._pending) == 0
