"""Client of the steering socket: pins gamma and reads counters of the running engine."""

import json
import socket
from pathlib import Path
from typing import Any

from vllm_hust_vspec.errors import UserError

_TIMEOUT_S = 20.0


class Steering:
    """One request, one reply, each a JSON object on a line. Every method raises UserError where the engine refuses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise UserError(
                f"the engine does not answer on its steering socket {path} ({error.strerror or error}); "
                "is the plugin installed in this environment? `pip install -e .` registers it"
            ) from error
        self._lines = self._socket.makefile("rb")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def pin(self, gamma: int | None) -> None:
        """Fix gamma for every following step; None gives it back to the controller."""
        self._ask({"op": "pin", "gamma": gamma})

    def reset(self) -> None:
        """Start a controller that has learnt nothing."""
        self._ask({"op": "reset"})

    def counters(self) -> dict[str, Any]:
        """Cumulative counts since the engine started."""
        return self._ask({"op": "counters"})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
            reply = json.loads(line) if line else None
        except (OSError, ValueError) as error:
            raise UserError(f"the steering socket {self._path} failed: {error}") from error
        if not isinstance(reply, dict):
            raise UserError(f"the engine closed its steering socket {self._path}; see the server's log")
        if reply.get("ok") is not True:
            raise UserError(f"the engine refused {request['op']}: {reply.get('error', 'no reason given')}")
        return reply
