"""A controller that is kept begins its next run where the last one ended."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_hust_vspec.control import make_controller
from vllm_hust_vspec.host.keeper import Keeper
from vllm_hust_vspec.host.state_file import StateFile
from vllm_hust_vspec.settings import AdaptiveSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "control"))
from simulator import PROFILES, SURFACES, Engine, always

IDENTITY: dict[str, str | int] = {"target": "t@1"}


class Counting:
    """A controller whose state is a number."""

    def __init__(self) -> None:
        self.state = 0

    def decide(self, step: Any) -> Any: ...

    def observe(self, outcome: Any) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {"state": self.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.state = state["state"]


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "s.json", IDENTITY)


def saved(file: StateFile) -> Any:
    """The state that is in the file once the keeper's thread has had time to write it."""
    deadline = time.monotonic() + 5
    while (found := file.load()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def resumed(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a controller makes of a state that another run left."""
    controller = make_controller(AdaptiveSettings(), max_gamma=4)
    controller.restore(state)
    return controller.snapshot()


def test_a_restart_begins_where_the_last_run_ended(file: StateFile) -> None:
    """Cold, a run climbs from gamma 0; restarted from the file, it serves at the learnt gamma from the first step."""
    cell = Engine(SURFACES["npu"], always(PROFILES["high"]), lambda done: 16, 12000)
    first = make_controller(AdaptiveSettings(), max_gamma=4)
    cold = cell.run(first, 1)
    keeper = Keeper(file)
    keeper.after_step(first, 0.0, idle=False)
    keeper.close(first)

    second = make_controller(AdaptiveSettings(), max_gamma=4)
    keeper = Keeper(file)
    keeper.restore(second)
    assert second.snapshot() == resumed(first.snapshot())
    assert second.snapshot()["summary"]["gamma"] == cold.gammas[-1]
    warm = cell.run(second, 1)
    keeper.close(second)
    assert cold.gammas[0] == 0
    assert warm.gammas[0] == cold.gammas[-1] > 0
    assert sum(warm.gammas[:10]) > sum(cold.gammas[:10])


def test_it_saves_after_a_while_under_load_and_sooner_at_rest(file: StateFile) -> None:
    keeper, controller = Keeper(file, busy_s=30, idle_s=2), Counting()
    for state, now, idle in ((1, 100.0, False), (2, 101.0, True)):
        controller.state = state
        keeper.after_step(controller, now, idle=idle)
    assert saved(file) == {"state": 2}
    file.path.unlink()
    for state, now, idle in ((3, 102.5, True), (4, 104.0, False), (5, 104.5, True)):
        controller.state = state
        keeper.after_step(controller, now, idle=idle)
    assert saved(file) == {"state": 5}
    file.path.unlink()
    for state, now in ((4, 110.0), (5, 134.5), (6, 135.0)):
        controller.state = state
        keeper.after_step(controller, now, idle=False)
    assert saved(file) == {"state": 5}
    keeper.close(controller)
    assert file.load() == {"state": 6}


def test_a_run_without_a_step_changes_nothing(file: StateFile) -> None:
    file.save({"state": 7})
    content = file.path.read_bytes()
    controller = Counting()
    keeper = Keeper(file)
    keeper.restore(controller)
    keeper.close(controller)
    keeper.close(controller)
    assert controller.state == 7
    assert file.path.read_bytes() == content


def test_a_state_that_cannot_be_taken_ends_nothing(file: StateFile, caplog: Any) -> None:
    class Broken(Counting):
        def snapshot(self) -> dict[str, Any]:
            raise RuntimeError("no state")

    keeper = Keeper(file)
    with caplog.at_level(logging.ERROR):
        keeper.after_step(Broken(), 0.0, idle=True)
        keeper.close(Broken())
    assert "could not be taken" in caplog.text
    assert file.load() is None
