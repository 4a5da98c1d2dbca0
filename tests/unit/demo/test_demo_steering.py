import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_hust_vspec.demo.steering import Steering
from vllm_hust_vspec.errors import UserError


class FakeEngine:
    """Answers each line with the next reply; None closes the connection."""

    def __init__(self, path: Path) -> None:
        self.asked: list[dict[str, Any]] = []
        self.replies: list[Any] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                self.asked.append(json.loads(line))
                reply = self.replies.pop(0)
                if reply is None:
                    return
                connection.sendall((reply if isinstance(reply, str) else json.dumps(reply)).encode() + b"\n")

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    fake = FakeEngine(tmp_path / "s")
    yield fake
    fake.close()


def test_requests_are_as_the_protocol_says(engine: FakeEngine, tmp_path: Path) -> None:
    counters = {"ok": True, "steps": 3, "gamma_histogram": {"0": 3}}
    engine.replies = [{"ok": True}, {"ok": True}, {"ok": True}, counters]
    steering = Steering(tmp_path / "s")
    steering.pin(2)
    steering.pin(None)
    steering.reset()
    assert steering.counters() == counters
    steering.close()
    assert engine.asked == [
        {"op": "pin", "gamma": 2},
        {"op": "pin", "gamma": None},
        {"op": "reset"},
        {"op": "counters"},
    ]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ({"ok": False, "error": "gamma is 0..4"}, "refused pin: gamma is 0..4"),
        ({"steps": 3}, "refused pin: no reason given"),
        ("no json", "failed"),
        (None, "closed"),
    ],
)
def test_a_bad_reply_is_one_clear_line(engine: FakeEngine, tmp_path: Path, reply: Any, told: str) -> None:
    engine.replies = [reply]
    steering = Steering(tmp_path / "s")
    with pytest.raises(UserError, match=told) as caught:
        steering.pin(9)
    assert "\n" not in str(caught.value)
    steering.close()


def test_a_missing_socket_points_at_the_plugin(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is the plugin installed"):
        Steering(tmp_path / "none")
