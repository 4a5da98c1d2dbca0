"""The trace: a line a step, whole lines, bounded files, and no harm to serving."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hust_vspec.control import StepOutcome
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host import trace as module
from vllm_hust_vspec.host.trace import Trace, is_header

OUTCOME = StepOutcome(3, 2, 0, 80, (3, 3), (1, 3), 6, 0.02, 8, 3, ("a", "b"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_step_has_a_line_between_header_and_end(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t", {"policy": "online"})
    for step in range(3):
        trace.add(50.0 + step, "hold", 812.25, OUTCOME)
    trace.close()
    trace.close()
    head, first, _, last, end = lines(tmp_path / "t")
    assert (head["format"], head["version"], head["part"], head["policy"]) == ("vspec-trace", 1, 0, "online")
    assert first == {
        "step": 0, "t": 0.0, "gamma": 3, "reason": "hold", "expected_goodput": 812.25, "num_decodes": 2,
        "num_prefill_tokens": 0, "context_tokens": 80, "verify_tokens": 8, "drafts": [[3, 1, 1], [3, 3, 1]],
        "proposed": 6, "accepted": 4, "committed_tokens": 6, "draft_passes": 3, "interval_s": 0.02,
    }  # fmt: skip
    assert (last["step"], last["t"]) == (2, 2.0)
    assert end == {"event": "end", "steps": 3, "dropped": 0}


def test_size_is_bounded_by_one_rotation(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t", {}, most_bytes=4000, every_s=0.001)
    for _ in range(200):
        trace.add(0.0, "hold", None, OUTCOME)
        time.sleep(0.0005)
    trace.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["t", "t.1"]
    newer, older = lines(tmp_path / "t"), lines(tmp_path / "t.1")
    assert newer[0]["part"] == older[0]["part"] + 1 > 1
    assert newer[1]["step"] == older[-1]["step"] + 1
    assert newer[-1] == {"event": "end", "steps": 200, "dropped": 0}
    assert all((tmp_path / name).stat().st_size <= 4000 for name in ("t", "t.1"))


def test_size_is_bounded_when_everything_comes_at_once(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t", {}, most_bytes=4000, every_s=60)
    for _ in range(200):
        trace.add(0.0, "hold", None, OUTCOME)
    trace.close()
    assert lines(tmp_path / "t")[-1] == {"event": "end", "steps": 200, "dropped": 0}
    assert all((tmp_path / name).stat().st_size <= 4000 for name in ("t", "t.1"))


def test_a_writer_that_cannot_keep_up_drops_steps_and_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    trace = Trace(tmp_path / "t", {}, every_s=60)
    for _ in range(25):
        trace.add(0.0, "hold", None, OUTCOME)
    trace.close()
    assert lines(tmp_path / "t")[-2:] == [
        {"event": "dropped", "dropped": 15},
        {"event": "end", "steps": 10, "dropped": 15},
    ]


def test_a_full_disk_ends_the_trace_with_one_warning(tmp_path: Path, caplog: Any, monkeypatch: Any) -> None:
    trace = Trace(tmp_path / "t", {}, every_s=60)

    def full(file: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        trace.add(0.0, "hold", None, OUTCOME)
        trace._drain()
    trace.close()
    assert [r.getMessage() for r in caplog.records if "No space left" in r.getMessage()] == [
        f"vspec: the trace {tmp_path / 't'} ends after 1 steps: No space left on device; serving goes on"
    ]


def test_an_earlier_trace_is_kept_and_a_foreign_file_is_not_touched(tmp_path: Path) -> None:
    for _ in range(2):
        Trace(tmp_path / "t", {}).close()
    assert lines(tmp_path / "t.1")[-1]["event"] == "end"
    foreign = tmp_path / "notes"
    foreign.write_text("my notes\n")
    with pytest.raises(UserError, match="exists and is no trace of vSpec; name another file"):
        Trace(foreign, {})
    assert foreign.read_text() == "my notes\n"
    for path, why in ((tmp_path, "is no file"), (foreign / "t", "cannot be written")):
        with pytest.raises(UserError, match=why):
            Trace(path, {})


def test_two_engines_cannot_share_a_trace(tmp_path: Path) -> None:
    first = Trace(tmp_path / "t", {})
    with pytest.raises(UserError, match="another engine writes it"):
        Trace(tmp_path / "t", {})
    first.close()
    Trace(tmp_path / "t", {}).close()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_engine_leaves_whole_lines(tmp_path: Path, sent: signal.Signals) -> None:
    code = f"""
        import time
        from pathlib import Path
        from vllm_hust_vspec.control import StepOutcome
        from vllm_hust_vspec.host.trace import Trace
        trace = Trace(Path({str(tmp_path / "t")!r}), {{}}, every_s=0.02)
        outcome = StepOutcome(3, 2, 0, 80, (3, 3), (1, 3), 6, 0.02, 8, 3, ("a", "b"))
        while True:
            trace.add(time.perf_counter(), "hold", None, outcome)
            time.sleep(0.001)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as child:
        deadline = time.monotonic() + 60
        while not (tmp_path / "t").exists() or (tmp_path / "t").stat().st_size < 4000:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(sent)
    found = lines(tmp_path / "t")
    assert found[0]["format"] == "vspec-trace"
    assert [line["step"] for line in found[1:]] == list(range(len(found) - 1))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_a_file_begins_with_is_told_from_a_header(line: bytes) -> None:
    assert is_header(line) is (b'"vspec-trace"' in line and json.loads(line).get("format") == "vspec-trace")
