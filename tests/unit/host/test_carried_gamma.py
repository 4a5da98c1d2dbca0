"""Where vLLM carries no gamma, the scheduler's side of bringing it."""

from __future__ import annotations

import pickle
from typing import Any

from vllm_hust_vspec.host.carried_gamma import GAMMA, CarriedGamma


class Sync:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def _update_after_schedule(self, output: Any) -> str:
        self.seen.append(getattr(self, "_spec_token_placeholders", None))
        return "done"


class Async(Sync):
    def __init__(self) -> None:
        super().__init__()
        self._spec_token_placeholders = [-1] * 4


class Carried(CarriedGamma, Async):
    pass


class CarriedSync(CarriedGamma, Sync):
    pass


class Output:
    pass


def step(gamma: int | None) -> Any:
    output = Output()
    if gamma is not None:
        setattr(output, GAMMA, gamma)
    return output


def test_the_asynchronous_scheduler_holds_places_for_as_many_as_are_drafted() -> None:
    scheduler = Carried()
    assert [scheduler._update_after_schedule(step(gamma)) for gamma in (2, 0, 4)] == ["done"] * 3
    assert scheduler.seen == [[-1, -1], [], [-1] * 4]


def test_places_that_a_request_still_holds_stay_as_they_were() -> None:
    scheduler = Carried()
    scheduler._update_after_schedule(step(3))
    held = scheduler.seen[-1]
    scheduler._update_after_schedule(step(1))
    assert held == [-1, -1, -1]


def test_an_empty_step_and_a_synchronous_scheduler_change_nothing() -> None:
    scheduler, plain = Carried(), CarriedSync()
    scheduler._update_after_schedule(step(None))
    plain._update_after_schedule(step(2))
    assert scheduler.seen == [[-1] * 4]
    assert plain.seen == [None]


def test_gamma_reaches_another_process() -> None:
    assert getattr(pickle.loads(pickle.dumps(step(3))), GAMMA) == 3
