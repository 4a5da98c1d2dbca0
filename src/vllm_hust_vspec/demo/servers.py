"""vLLM's OpenAI servers as child processes: started together, watched until healthy, ended for sure."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from vllm_hust_vspec.demo.ports import HOST
from vllm_hust_vspec.demo.signals import held
from vllm_hust_vspec.errors import UserError

_POLITE_S = 8.0
_POLL_S = 0.1
_LONGEST_COMPLAINT = 300
_COMPLAINTS = (
    re.compile(r"^(vspec: .+)$", re.MULTILINE),
    re.compile(r"^(?:\(.*\) ERROR .*\] )?(\w*(?:Error|Exception): .+)$", re.MULTILINE),
)


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Runs in the child: the kernel asks it to end where the demo is killed, which could not end it itself."""
    assert _libc is not None
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """One server in a process group of its own, so that all of it can be ended."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> None:
        self.name = name
        self.url = f"http://{HOST}:{port}"
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self._group = self._process.pid

    def healthy(self) -> bool:
        """Whether it serves. Raises UserError where it has ended."""
        self.check()
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def check(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise UserError(
                f"the {self.name} server ended with code {code} ({self._complaint()}); its log is {self.log}"
            )

    def ask_to_end(self) -> None:
        """First the server alone, which ends its children in order."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def end(self, deadline: float) -> None:
        """Wait for it until `deadline` (monotonic seconds); what is left of its group then is killed."""
        while time.monotonic() < deadline and (self._process.poll() is None or self._group_lives()):
            time.sleep(_POLL_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        self._process.wait()
        while self._group_lives() and time.monotonic() < deadline + _POLITE_S:
            time.sleep(_POLL_S)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _complaint(self) -> str:
        """What the log says of the failure: a line of ours, else the first exception, the cause of the others."""
        text = self.log.read_text(errors="replace")
        for pattern in _COMPLAINTS:
            if told := pattern.search(text):
                return told[1].strip()[:_LONGEST_COMPLAINT]
        return "no reason in its output"


class Servers:
    """All servers of a run; leaving the context ends them, whatever happened."""

    def __init__(self) -> None:
        self.all: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with held():
            for server in self.all:
                server.ask_to_end()
            deadline = time.monotonic() + _POLITE_S
            for server in self.all:
                server.end(deadline)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Server:
        with held():
            server = Server(name, command, environment, port, log)
            self.all.append(server)
        return server

    def wait_until_healthy(self, deadline_s: float, tick: Callable[[int], None]) -> None:
        """Wait for all of them at once. tick: is told how many are ready, a few times a second."""
        end = time.monotonic() + deadline_s
        waiting = list(self.all)
        while waiting:
            waiting = [server for server in waiting if not server.healthy()]
            tick(len(self.all) - len(waiting))
            if waiting and time.monotonic() > end:
                late = waiting[0]
                raise UserError(f"the {late.name} server was not ready after {deadline_s:.0f} s; its log is {late.log}")
            if waiting:
                time.sleep(0.5)
