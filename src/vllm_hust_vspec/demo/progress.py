"""How far the demo is: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Show:
    """Tells on stderr what happens. Leaving the context takes the bar away."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._start = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._console.is_terminal:
            self._progress.console.print(line, highlight=False, markup=False)
        else:
            print(f"[{time.monotonic() - self._start:5.0f} s] {line}", file=sys.stderr, flush=True)

    def doing(self, what: str) -> None:
        """What is going on now; seen on a terminal only."""
        self._progress.update(self._task, description=what)

    def advance(self, steps: int = 1) -> None:
        self._progress.advance(self._task, steps)
