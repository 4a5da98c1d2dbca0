"""What is measured, in which order, and how many tokens each run may have so that all of it fits its time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from vllm_hust_vspec.demo.prompts import KINDS

TARGET, ADAPTIVE = "target-only", "adaptive"
CONCURRENCY = (1, 8, 32)
MAX_GAMMA = 4
FIXED = tuple(f"fixed-{gamma}" for gamma in range(1, MAX_GAMMA + 1))
MODES = (TARGET, *FIXED, ADAPTIVE)

_TOKENS = 64  # per request, aimed at
_FEWEST, _MOST = 16, 160
_SPARE = 0.93  # of the time left: later cells may run slower than the warm-up of this one


def gamma_of(mode: str) -> int | None:
    """The pinned gamma of a fixed mode; None for the others."""
    return int(mode.removeprefix("fixed-")) if mode in FIXED else None


@dataclass(frozen=True, slots=True)
class Cell:
    """Prompts of one kind at one concurrency."""

    kind: str
    concurrency: int


CELLS = tuple(Cell(kind, concurrency) for concurrency in CONCURRENCY for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Load:
    """How much each run of a cell does: so many requests, each of so many tokens."""

    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How long the demo may take. seconds: from the start of the servers to the end; reserve_s: for the noise."""

    name: str
    seconds: float
    reserve_s: float
    rounds: int
    noise_tokens: int
    noise_texts: int
    noise_prefixes: int


QUICK = Scale("quick", seconds=440, reserve_s=50, rounds=1, noise_tokens=32, noise_texts=16, noise_prefixes=64)
FULL = Scale("full", seconds=1380, reserve_s=110, rounds=2, noise_tokens=64, noise_texts=32, noise_prefixes=128)


def order(rounds: int) -> list[str]:
    """Modes of a cell in the order of its runs.

    A round: target, adaptive, adaptive, target, the fixed ones, and the first four in reverse; the next is its reverse.

    So a drift of the machine touches both alike, and each round gives four ratios.
    """
    runs: list[str] = []
    for number in range(rounds):
        pair = [TARGET, ADAPTIVE] if number % 2 == 0 else [ADAPTIVE, TARGET]
        fixed = FIXED if number % 2 == 0 else FIXED[::-1]
        runs += [*pair, *pair[::-1], *fixed, *pair[::-1], *pair]
    return runs


class Clock:
    """Shares the time that is left among the runs that are left."""

    def __init__(self, scale: Scale, runs: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._reserve = scale.reserve_s
        self._end = now() + scale.seconds - scale.reserve_s
        self._runs = runs

    def seconds_per_run(self) -> float:
        return max(self._end - self._now(), 0.0) * _SPARE / max(self._runs, 1)

    def late(self) -> bool:
        """Whether the whole time of the demo is used up, that of the noise included."""
        return self._now() > self._end + self._reserve

    def done(self, runs: int) -> None:
        self._runs -= runs


def load(cell: Cell, tokens_per_s: float, seconds: float) -> Load:
    """The load that keeps a server of this speed busy for about `seconds`."""
    total = tokens_per_s * seconds
    waves = max(1, round(total / (cell.concurrency * _TOKENS)))
    tokens = int(total / (cell.concurrency * waves))
    return Load(cell.concurrency * waves, min(max(tokens, _FEWEST), _MOST))
