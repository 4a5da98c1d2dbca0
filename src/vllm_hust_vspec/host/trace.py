"""`--adaptive-trace`: each decision with its outcome, one JSON object a line (docs/adaptive.md).

The scheduler's thread only appends to a queue; a thread of its own encodes and writes whole lines four times a second,
so that a killed engine loses no more than that. Two files of MOST_BYTES at most are kept.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock

from vllm_hust_vspec.control import StepOutcome
from vllm_hust_vspec.errors import UserError

logger = logging.getLogger("vllm.vspec")

FORMAT = "vspec-trace"
VERSION = 1
MOST_BYTES = 64 << 20
MOST_WAITING = 4096
EVERY_S = 0.25

Record = tuple[float, str, float | None, StepOutcome]


class Trace:
    """Writes one engine's trace. header: JSON-able facts of the run, repeated at the head of every file.

    Raises UserError where the path cannot be had: a foreign file, another engine's trace, no directory.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], *, most_bytes: int = MOST_BYTES, every_s: float = EVERY_S
    ) -> None:
        self.path = path
        self._header = dict(header)
        self._most_bytes = most_bytes
        self._every_s = every_s
        self._waiting: deque[Record] = deque()
        self._steps = self._part = self._size = self._dropped = self._told = 0
        self._first: float | None = None
        self._broken = False
        self._stop = threading.Event()
        self._lock = filelock.FileLock(f"{path}.lock", timeout=0, mode=0o600)
        try:
            self._lock.acquire()
            self._set_older_aside()
            self._file = self._open()
        except filelock.Timeout:
            raise UserError(f"--adaptive-trace {path}: another engine writes it; name another file") from None
        except OSError as error:
            self._lock.release()
            raise UserError(f"--adaptive-trace {path}: cannot be written: {error.strerror or error}") from None
        except UserError:
            self._lock.release()
            raise
        atexit.register(self.close)
        self._thread = threading.Thread(target=self._run, name="vspec-trace", daemon=True)
        self._thread.start()

    def add(self, now: float, reason: str, expected: float | None, outcome: StepOutcome) -> None:
        """A decided step and what became of it. now: seconds, the loop's clock. Costs an append."""
        if len(self._waiting) < MOST_WAITING and not self._broken:
            self._waiting.append((now, reason, expected, outcome))
        else:
            self._dropped += 1

    def close(self) -> None:
        """Write what is left and the line that says the trace is whole. Calling it again does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        atexit.unregister(self.close)
        self._drain()
        if not self._broken:
            self._write([{"event": "end", "steps": self._steps, "dropped": self._dropped}])
        os.close(self._file)
        self._lock.release()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._drain()

    def _drain(self) -> None:
        lines: list[Mapping[str, Any]] = []
        while self._waiting:
            now, reason, expected, outcome = self._waiting.popleft()
            self._first = now if self._first is None else self._first
            lines.append(line_of(self._steps, now - self._first, reason, expected, outcome))
            self._steps += 1
        if self._dropped > self._told and not self._broken:
            self._told = self._dropped
            lines.append({"event": "dropped", "dropped": self._dropped})
        if lines and not self._broken:
            self._write(lines)

    def _write(self, lines: list[Mapping[str, Any]]) -> None:
        try:
            chunk = bytearray()
            for line in lines:
                encoded = json.dumps(line, separators=(",", ":")).encode() + b"\n"
                if self._size + len(chunk) + len(encoded) > self._most_bytes:
                    self._append(self._file, chunk)
                    self._rotate()
                    chunk = bytearray()
                chunk += encoded
            self._append(self._file, chunk)
        except OSError as error:
            self._broken = True
            self._waiting.clear()
            logger.warning(
                "vspec: the trace %s ends after %d steps: %s; serving goes on",
                self.path,
                self._steps,
                error.strerror or error,
            )

    def _append(self, file: int, content: bytes | bytearray) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        self._size += len(content)

    def _rotate(self) -> None:
        os.replace(self.path, f"{self.path}.1")
        older, self._file = self._file, self._open()
        os.close(older)

    def _open(self) -> int:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = 0
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"format": FORMAT, "version": VERSION, "part": self._part, "opened_at": started, **self._header}
        self._append(file, json.dumps(head, separators=(",", ":")).encode() + b"\n")
        self._part += 1
        return file

    def _set_older_aside(self) -> None:
        """Keep an earlier run's trace as FILE.1; refuse to touch a file that is no trace."""
        if not os.path.lexists(self.path):
            return
        if not self.path.is_file():
            raise UserError(f"--adaptive-trace {self.path}: exists and is no file; name another path")
        with self.path.open("rb") as file:
            first = file.readline(1 << 16)
        if not first:
            return
        if not is_header(first):
            raise UserError(f"--adaptive-trace {self.path}: exists and is no trace of vSpec; name another file")
        os.replace(self.path, f"{self.path}.1")


def is_header(line: bytes) -> bool:
    """Whether a line is the first one of a trace."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def line_of(step: int, seconds: float, reason: str, expected: float | None, outcome: StepOutcome) -> dict[str, Any]:
    """A step's line. drafts: [proposed, accepted, requests] of the drafts verified in it, those of an earlier step."""
    pairs = Counter(zip(outcome.proposed, outcome.accepted, strict=False))
    interval = outcome.interval_s
    return {
        "step": step,
        "t": round(seconds, 6),
        "gamma": outcome.gamma,
        "reason": reason,
        "expected_goodput": None if expected is None else round(expected, 3),
        "num_decodes": outcome.num_decodes,
        "num_prefill_tokens": outcome.num_prefill_tokens,
        "context_tokens": outcome.context_tokens,
        "verify_tokens": outcome.verify_tokens,
        "drafts": [[proposed, accepted, requests] for (proposed, accepted), requests in sorted(pairs.items())],
        "proposed": sum(outcome.proposed),
        "accepted": sum(outcome.accepted),
        "committed_tokens": outcome.committed_tokens,
        "draft_passes": outcome.draft_passes,
        "interval_s": None if interval is None else round(interval, 9),
    }
