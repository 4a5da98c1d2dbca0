"""How long a step may run, and when it stands aside."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

_LOOK_S = 2.0


class Budget:
    """Wall time that work may take. Time spent paused does not count."""

    def __init__(self, minutes: float, pause_while: Path | None = None) -> None:
        self._left = minutes * 60
        self._total = max(self._left, 1e-9)
        self._pause_while = pause_while
        self._last = time.monotonic()

    def goes_on(self) -> bool:
        """Whether time is left; waits first for as long as the pausing file exists."""
        now = time.monotonic()
        self._left -= now - self._last
        while self._pause_while is not None and self._pause_while.exists():
            time.sleep(_LOOK_S)
        self._last = time.monotonic()
        return self._left > 0

    def used(self) -> float:
        """Share of the budget that is used up, 0 to 1."""
        return min(1.0, 1 - self._left / self._total)


def add_options(parser: argparse.ArgumentParser, minutes: float) -> None:
    parser.add_argument("--minutes", type=float, default=minutes, help=f"how long it may run (default {minutes:g})")
    add_pause_option(parser)


def add_pause_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pause-while", type=Path, metavar="FILE", help="stand still while this file exists")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads of PyTorch (default 1)")
