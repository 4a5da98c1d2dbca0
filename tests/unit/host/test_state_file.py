"""What a run learnt reaches the next run of the same models on the same host, and nothing in the file can do harm."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import filelock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hust_vspec.host import state_file
from vllm_hust_vspec.host.state_file import StateFile, default_path

IDENTITY: dict[str, str | int] = {"target": "t@1", "drafter": "d@1", "max_gamma": 4}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "controllers.json"


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.bad-*"))


def test_a_snapshot_comes_back_for_the_same_identity_alone(path: Path) -> None:
    assert StateFile(path, IDENTITY).load() is None
    assert StateFile(path, IDENTITY).save({"gamma": 3})
    assert StateFile(path, dict(reversed(IDENTITY.items()))).load() == {"gamma": 3}
    for key in IDENTITY:
        assert StateFile(path, IDENTITY | {key: "other"}).load() is None, key


def test_a_file_keeps_each_identitys_newest_state_and_a_bounded_number(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(state_file, "MOST_ENTRIES", 3)
    for gamma in range(5):
        StateFile(path, IDENTITY | {"max_gamma": gamma}).save({"gamma": gamma})
    StateFile(path, IDENTITY | {"max_gamma": 4}).save({"gamma": 9})
    kept = {gamma: StateFile(path, IDENTITY | {"max_gamma": gamma}).load() for gamma in range(5)}
    assert kept == {0: None, 1: None, 2: {"gamma": 2}, 3: {"gamma": 3}, 4: {"gamma": 9}}


def sound() -> dict[str, Any]:
    return {"format": "vspec-state", "version": 1, "entries": {}}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b"{}", b"[" * 100_000,
        json.dumps(sound() | {"format": "another"}).encode(),
        json.dumps(sound() | {"version": 2}).encode(),
        json.dumps(sound() | {"entries": []}).encode(),
        json.dumps(sound() | {"entries": {"k": {}}}).encode(),
        json.dumps(sound() | {"entries": {"k": {"identity": {}, "saved_at": "x", "snapshot": {}}}}).encode(),
        json.dumps(sound() | {"entries": {"k": {"identity": {}, "saved_at": 1, "snapshot": 3}}}).encode(),
        b'{"format": "vspec-state", "version": 1, "entries": {}, "x": NaN}',
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_set_aside_with_one_warning(path: Path, content: bytes, caplog: Any) -> None:
    path.write_bytes(content)
    file = StateFile(path, IDENTITY)
    with caplog.at_level(logging.WARNING):
        assert file.load() is None
        assert file.save({"gamma": 1})
    assert [len(record.getMessage().splitlines()) for record in caplog.records] == [1]
    (bad,) = aside(path)
    assert bad.read_bytes() == content
    assert file.load() == {"gamma": 1}


def test_what_cannot_be_read_or_written_is_said_once(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_text("")
    file = StateFile(tmp_path / "file" / "state.json", IDENTITY)
    with caplog.at_level(logging.WARNING):
        assert not file.save({})
        assert not file.save({})
        assert not StateFile(tmp_path / "s", IDENTITY).save({"x": float("nan")})
    assert len(caplog.records) == 2
    assert not (tmp_path / "s").exists()


def test_a_held_lock_costs_a_bounded_wait_and_no_error(path: Path, caplog: Any) -> None:
    StateFile(path, IDENTITY).save({"gamma": 1})
    with filelock.FileLock(f"{path}.lock"):
        file = StateFile(path, IDENTITY, lock_timeout_s=0.05)
        assert file.load() is None
        assert not file.save({"gamma": 2})
    assert StateFile(path, IDENTITY).load() == {"gamma": 1}


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: Any) -> None:
    file = StateFile(path, IDENTITY)
    file.save({"gamma": 1})

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    assert not file.save({"gamma": 2})
    assert file.load() == {"gamma": 1}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_two_engines_on_one_file_do_not_corrupt_it(path: Path) -> None:
    code = f"""
        import sys
        from pathlib import Path
        from vllm_hust_vspec.host.state_file import StateFile
        file = StateFile(Path({str(path)!r}), {{"engine": sys.argv[1]}}, lock_timeout_s=60)
        for turn in range(40):
            assert file.save({{"turn": turn, "load": "x" * 5000}})
    """
    engines = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), name]) for name in "ab"]
    assert [engine.wait(120) for engine in engines] == [0, 0]
    for name in "ab":
        found = StateFile(path, {"engine": name}).load()
        assert found is not None
        assert found["turn"] == 39
    assert aside(path) == []


def test_the_default_file_is_in_the_users_state_directory(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "vllm-hust-vspec" / "controllers.json"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=80) | anything.map(lambda value: json.dumps(sound() | {"entries": value}).encode()))
def test_no_content_makes_it_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "s.json"
    path.write_bytes(content)
    file = StateFile(path, IDENTITY)
    file.load()
    assert file.save({"gamma": 2})
    assert file.load() == {"gamma": 2}
