"""Saves what the controller learnt while it serves: now and then, when the engine rests, and at the end.

The snapshot is taken on the scheduler's path, between two steps, so that it is of one moment; it is encoded and written
by a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from vllm_hust_vspec.control import GammaController
from vllm_hust_vspec.host.state_file import StateFile

logger = logging.getLogger("vllm.vspec")

BUSY_S = 30.0
IDLE_S = 2.0


class Keeper:
    """busy_s, idle_s: least seconds between two saves under load, and when nothing is left to serve."""

    def __init__(self, file: StateFile, *, busy_s: float = BUSY_S, idle_s: float = IDLE_S) -> None:
        self.file = file
        self._busy_s = busy_s
        self._idle_s = idle_s
        self._saved_at: float | None = None
        self._next: dict[str, Any] | None = None
        self._unsaved = False
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="vspec-keeper", daemon=True)
        self._thread.start()

    def restore(self, controller: GammaController) -> None:
        """Let a new controller begin where the last run of the same identity ended."""
        snapshot = self.file.load()
        if snapshot is not None:
            controller.restore(snapshot)
            logger.info("vspec: the controller begins with what an earlier run learnt (%s)", self.file.path)

    def after_step(self, controller: GammaController, now: float, *, idle: bool) -> None:
        """A step was observed at `now` (seconds, the loop's clock); save if it is time to."""
        self._unsaved = True
        if self._saved_at is None:
            self._saved_at = now - (self._busy_s - self._idle_s)  # the first seconds teach the most
        if now - self._saved_at >= (self._idle_s if idle else self._busy_s):
            self._saved_at = now
            self._take(controller)
            self._wake.set()

    def close(self, controller: GammaController) -> None:
        """Save a last time and end."""
        self._stop = True
        self._wake.set()
        self._thread.join()
        if self._unsaved:
            self._take(controller)
            self._write()

    def _take(self, controller: GammaController) -> None:
        try:
            self._next = controller.snapshot()
            self._unsaved = False
        except Exception:
            logger.exception("vspec: the controller's state could not be taken; it is not saved this time")

    def _run(self) -> None:
        while not self._stop:
            self._wake.wait()
            self._wake.clear()
            self._write()

    def _write(self) -> None:
        snapshot, self._next = self._next, None
        if snapshot is not None:
            self.file.save(snapshot)
