"""A real engine leaves a trace and a state file, and the next one begins where it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engines import MAX_GAMMA, engine

from vllm_hust_vspec.control import make_controller
from vllm_hust_vspec.host import hooks
from vllm_hust_vspec.settings import AdaptiveSettings, Settings


def _params() -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


def _serve(models: Path, monkeypatch: pytest.MonkeyPatch, **adaptive: Any) -> tuple[list[Any], list[Any], Any]:
    """Answers to six prompts, and the controller's state before them and after."""
    monkeypatch.setattr(hooks, "settings", lambda: Settings(adaptive=AdaptiveSettings(**adaptive)))
    with engine(models / "target", method="draft_model", drafter=models / "draft_noisy") as started:
        loop = started.scheduler.vspec
        before = loop.counters()["controller"]
        answers = started.generate([[5 + row, 9, 11, 40 + row] for row in range(6)], _params())
        return answers, before, loop.counters()["controller"]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_restart_begins_where_the_last_run_ended(models: Path, tmp_path: Path, monkeypatch: Any) -> None:
    options = {"memory": True, "state_file": tmp_path / "state.json", "trace": tmp_path / "trace.jsonl"}
    answers, _, learnt = _serve(models, monkeypatch, **options)
    head, *steps, end = _lines(options["trace"])
    assert (head["format"], head["version"], head["max_gamma"]) == ("vspec-trace", 1, MAX_GAMMA)
    assert head["identity"]["target"].startswith("target@")
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert end == {"event": "end", "steps": len(steps), "dropped": 0}
    assert sum(step["committed_tokens"] for step in steps) == 6 * 60
    assert sum(step["proposed"] for step in steps) > 0
    assert all(step["interval_s"] is None or step["interval_s"] > 0 for step in steps)
    assert learnt["summary"]["counters"]["steps"] == len(steps)

    again, before, _ = _serve(models, monkeypatch, **options)
    expected = make_controller(AdaptiveSettings(), max_gamma=MAX_GAMMA)
    expected.restore(learnt)
    assert before == expected.snapshot(), "the second engine does not start with what the first one learnt"
    assert before["summary"]["counters"] == learnt["summary"]["counters"]
    assert again == answers
    assert _lines(tmp_path / "trace.jsonl.1")[-1] == end
    assert len(json.loads(options["state_file"].read_text())["entries"]) == 1


def test_a_profile_drives_a_real_engine(models: Path, tmp_path: Path, monkeypatch: Any) -> None:
    profile = json.loads((Path(__file__).parents[2] / "profiles" / "example.json").read_text())
    path, trace = tmp_path / "p.json", tmp_path / "trace.jsonl"
    path.write_text(json.dumps(profile | {"measured_on": {"target": "target", "host": "cpu"}}))
    plain, _, _ = _serve(models, monkeypatch, policy="profile", profile=path, memory=False, trace=trace)
    fixed, _, _ = _serve(models, monkeypatch, policy="fixed", memory=False)
    assert plain == fixed
    steps = [line for line in _lines(trace) if "step" in line]
    assert next(step for step in steps if step["num_decodes"])["gamma"] == 2
    assert all(step["expected_goodput"] for step in steps if step["num_decodes"] and step["reason"] != "fault")
