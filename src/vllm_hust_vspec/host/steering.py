"""The steering socket: a local tool pins gamma and reads counters of a running engine.

A Unix stream socket, readable by its owner alone. One JSON object a line, each answered by one:
`{"op": "pin", "gamma": 2}` pins gamma, `{"op": "pin", "gamma": null}` releases it, `{"op": "reset"}` starts a fresh
controller, `{"op": "counters"}` reads the counts. Replies carry `"ok": true`, or `"ok": false` and an `error` line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import socketserver
import stat
import threading
import time
from typing import Any

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host.gamma_loop import GammaLoop

_LONGEST_PATH = 107  # sun_path of Linux, less its closing zero


class SteeringServer:
    """Serves the socket from a thread of its own until `close`."""

    def __init__(self, path: str, loop: GammaLoop) -> None:
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise UserError(f"--steering-socket {path} is longer than {_LONGEST_PATH} bytes; choose a shorter path")
        _clear_stale(path)
        handler = type("Handler", (_Handler,), {"gamma_loop": loop})
        before = os.umask(0o177)
        try:
            self._server = _Server(path, handler)
        except OSError as error:
            raise UserError(f"--steering-socket {path} cannot be opened: {error.strerror or error}") from error
        finally:
            os.umask(before)
        self._path = path
        self._thread = threading.Thread(target=self._server.serve_forever, name="vspec-steering", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


class _Handler(socketserver.StreamRequestHandler):
    gamma_loop: GammaLoop

    def handle(self) -> None:
        for line in self.rfile:
            try:
                reply = {"ok": True} | answer(self.gamma_loop, json.loads(line))
            except (ValueError, TypeError) as error:
                reply = {"ok": False, "error": " ".join(str(error).split())}
            try:
                self.wfile.write(json.dumps(reply).encode() + b"\n")
            except OSError:  # the other side went away
                return


def answer(loop: GammaLoop, request: Any) -> dict[str, Any]:
    """Carry out one request. Raises ValueError with one line where it makes no sense."""
    if not isinstance(request, dict):
        raise ValueError("a request is a JSON object with an op")
    match request.get("op"):
        case "pin":
            loop.pin = _gamma(request.get("gamma"), loop.max_gamma)
            return {"gamma": loop.pin}
        case "reset":
            loop.reset()
            return {}
        case "counters":
            return loop.counters()
        case other:
            raise ValueError(f"unknown op {other!r}; known: pin, reset, counters")


def _gamma(value: Any, max_gamma: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= max_gamma:
        raise ValueError(f"gamma is null or a whole number in 0..{max_gamma}, not {value!r}")
    return value


def remove_at_exit(path: str) -> None:
    """Let this process, as it ends, remove the socket of an engine that was killed: vLLM gives engines no time."""

    def remove() -> None:
        for _ in range(20):  # the engine may take a moment to die of its signal
            with contextlib.suppress(UserError, OSError):
                _clear_stale(path)
                return
            time.sleep(0.05)

    atexit.register(remove)


def _clear_stale(path: str) -> None:
    """Remove the socket that a killed engine left; refuse one that answers, and anything that is no socket."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise UserError(f"--steering-socket {path} exists and is no socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise UserError(f"--steering-socket {path} is in use by another server; choose another path")
