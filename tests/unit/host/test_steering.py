"""The steering socket pins gamma, reads counters, and refuses nonsense with one line."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_gamma_loop import Host

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host.steering import SteeringServer


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a Unix socket's may not exceed 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vs") as path:
        yield Path(path)


def ask(path: Path, *lines: str) -> list[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rw") as stream:
            replies = []
            for line in lines:
                stream.write(line + "\n")
                stream.flush()
                replies.append(json.loads(stream.readline()))
    return replies


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[Host, Path]]:
    host, path = Host([1]), folder / "s"
    server = SteeringServer(str(path), host.loop)
    yield host, path
    server.close()
    assert not path.exists()


def test_pin_release_reset_and_counters(served: tuple[Host, Path]) -> None:
    host, path = served
    assert ask(path, '{"op": "pin", "gamma": 2}') == [{"ok": True, "gamma": 2}]
    assert host.loop.pin == 2
    released, reset, counters = ask(path, '{"op": "pin", "gamma": null}', '{"op": "reset"}', '{"op": "counters"}')
    assert host.loop.pin is None
    assert released["ok"]
    assert reset == {"ok": True}
    assert counters["ok"]
    assert (counters["max_gamma"], counters["method"]) == (4, "draft_model")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"op": "pin", "gamma": 5}', "0..4"),
        ('{"op": "pin", "gamma": -1}', "0..4"),
        ('{"op": "pin", "gamma": true}', "0..4"),
        ('{"op": "pin", "gamma": "2"}', "0..4"),
        ('{"op": "fly"}', "unknown op 'fly'"),
        ("[1]", "JSON object"),
        ("not json", "Expecting value"),
    ],
)
def test_nonsense_is_answered_and_changes_nothing(served: tuple[Host, Path], line: str, says: str) -> None:
    host, path = served
    (reply,) = ask(path, line)
    assert not reply["ok"]
    assert says in reply["error"]
    assert host.loop.pin is None


def test_only_the_owner_may_steer(served: tuple[Host, Path]) -> None:
    assert stat.S_IMODE(os.stat(served[1]).st_mode) == 0o600


def test_the_socket_of_a_killed_engine_is_replaced(folder: Path) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = SteeringServer(str(path), Host([1]).loop)
    assert ask(path, '{"op": "reset"}') == [{"ok": True}]
    server.close()


def test_a_socket_in_use_is_refused(served: tuple[Host, Path]) -> None:
    with pytest.raises(UserError, match="in use by another server"):
        SteeringServer(str(served[1]), Host([1]).loop)


def test_a_plain_file_is_never_overwritten(folder: Path) -> None:
    path = folder / "precious"
    path.write_text("data")
    with pytest.raises(UserError, match="is no socket"):
        SteeringServer(str(path), Host([1]).loop)
    assert path.read_text() == "data"


def test_bad_paths_are_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match="longer than 107 bytes"):
        SteeringServer(str(folder / ("x" * 120)), Host([1]).loop)
    with pytest.raises(UserError, match="cannot be opened"):
        SteeringServer(str(folder / "missing" / "s"), Host([1]).loop)
