"""What was measured, and what follows from it. Pure data: no server, no clock."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_hust_vspec.demo.identity import QUIET, Judged, Noise
from vllm_hust_vspec.demo.plan import ADAPTIVE, FIXED, MODES, TARGET, Cell, Load

_SUMS = ("steps", "proposed", "accepted", "verifications", "switches", "faults")


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counts of the engine over one run. histogram: steps by gamma; verifications: drafts verified, per request."""

    histogram: dict[int, int]
    steps: int = 0
    proposed: int = 0
    accepted: int = 0
    verifications: int = 0
    switches: int = 0
    faults: int = 0

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> "Speculation":
        """The difference of two readings of the cumulative counters."""
        earlier = before["gamma_histogram"]
        counts = {int(gamma): count - earlier.get(gamma, 0) for gamma, count in after["gamma_histogram"].items()}
        histogram = {gamma: count for gamma, count in sorted(counts.items()) if count}
        return cls(histogram, **{name: after.get(name, 0) - before.get(name, 0) for name in _SUMS})

    def __add__(self, other: "Speculation") -> "Speculation":
        histogram = dict(sorted((Counter(self.histogram) + Counter(other.histogram)).items()))
        return Speculation(histogram, **{name: getattr(self, name) + getattr(other, name) for name in _SUMS})

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens that a verified draft yields, the target's own included; None where none was verified."""
        return 1 + self.accepted / self.verifications if self.verifications else None


@dataclass(frozen=True, slots=True)
class Run:
    """One mode, once, over all prompts of a cell. speculation: None for target-only."""

    mode: str
    tokens: int
    seconds: float
    speculation: Speculation | None = None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of speeds with the least and the greatest of its repeats."""

    mean: float
    least: float
    greatest: float


@dataclass(slots=True)
class CellResult:
    cell: Cell
    load: Load
    runs: list[Run] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    def of(self, mode: str) -> list[Run]:
        return [run for run in self.runs if run.mode == mode]

    def tokens_per_s(self, mode: str) -> float:
        """Over all repeats: all tokens by all seconds."""
        runs = self.of(mode)
        return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)

    def speculation(self, mode: str) -> Speculation | None:
        found = [run.speculation for run in self.of(mode) if run.speculation is not None]
        return sum(found[1:], found[0]) if found else None

    def best_fixed(self) -> str:
        return max(FIXED, key=self.tokens_per_s)

    def to_target(self) -> Ratio:
        """Adaptive to target-only; the spread is that of the pairs, each run beside the other's of the same turn."""
        pairs = zip(self.of(ADAPTIVE), self.of(TARGET), strict=True)
        each = [one.tokens_per_s / other.tokens_per_s for one, other in pairs]
        return Ratio(self.tokens_per_s(ADAPTIVE) / self.tokens_per_s(TARGET), min(each), max(each))

    def to_best_fixed(self) -> Ratio:
        best = self.tokens_per_s(self.best_fixed())
        each = [run.tokens_per_s / best for run in self.of(ADAPTIVE)]
        return Ratio(self.tokens_per_s(ADAPTIVE) / best, min(each), max(each))

    def divergences(self, modes: Iterable[str] = MODES) -> list[Judged]:
        wanted = set(modes)
        return [judged for judged in self.judged if judged.divergence.mode in wanted]


@dataclass(slots=True)
class Results:
    """All cells of a demo, the noise that explains divergences, and the host they were measured on."""

    cells: list[CellResult]
    host: dict[str, Any]
    noise: Noise = QUIET

    @property
    def judged(self) -> list[Judged]:
        return [judged for cell in self.cells for judged in cell.judged]

    @property
    def unexplained(self) -> int:
        return sum(not judged.explained for judged in self.judged)

    @property
    def faults(self) -> int:
        """Times that the controller failed and gamma was pinned; its figures are then not adaptive's."""
        found = [cell.speculation(ADAPTIVE) for cell in self.cells]
        return sum(speculation.faults for speculation in found if speculation is not None)

    def as_json(self) -> dict[str, Any]:
        return {
            "cells": [_cell_json(cell, mode) for cell in self.cells for mode in MODES],
            "host": self.host,
            "noise": {"largest_gap_difference_nats": self.noise.largest, "samples": self.noise.samples},
            "divergences": [_divergence_json(judged) for judged in self.judged],
        }


def geometric_mean(values: Sequence[float]) -> float:
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    return product


def _cell_json(result: CellResult, mode: str) -> dict[str, Any]:
    speculation, judged = result.speculation(mode), result.divergences([mode])
    told: dict[str, Any] = {
        "prompts": result.cell.kind,
        "concurrency": result.cell.concurrency,
        "mode": mode,
        "tokens_per_s": round(result.tokens_per_s(mode), 2),
        "acceptance_length": None,
        "gamma_histogram": {},
        "identical_to_target_only": not judged,
        "divergences": len(judged),
        "unexplained_divergences": sum(not one.explained for one in judged),
        "requests": result.load.requests,
        "tokens_per_request": result.load.tokens,
        "repeats": [round(run.tokens_per_s, 2) for run in result.of(mode)],
    }
    if speculation is not None:
        length = speculation.acceptance_length
        told |= {
            "acceptance_length": None if length is None else round(length, 3),
            "gamma_histogram": {str(gamma): count for gamma, count in speculation.histogram.items()},
            "proposed": speculation.proposed,
            "accepted": speculation.accepted,
        }
    if mode == ADAPTIVE:
        told |= {
            "ratio_to_target_only": _ratio_json(result.to_target()),
            "ratio_to_best_fixed": _ratio_json(result.to_best_fixed()),
            "best_fixed": result.best_fixed(),
            "gamma_switches": speculation.switches if speculation else 0,
        }
    return told


def _ratio_json(ratio: Ratio) -> dict[str, float]:
    return {"mean": round(ratio.mean, 4), "least": round(ratio.least, 4), "greatest": round(ratio.greatest, 4)}


def _divergence_json(judged: Judged) -> dict[str, Any]:
    divergence = judged.divergence
    return {
        "prompts": divergence.kind,
        "concurrency": divergence.concurrency,
        "mode": divergence.mode,
        "request": divergence.request,
        "position": divergence.position,
        "expected_token": divergence.expected,
        "got_token": divergence.got,
        "gap_nats": judged.gap if judged.gap != float("inf") else None,
        "explained": judged.explained,
    }
