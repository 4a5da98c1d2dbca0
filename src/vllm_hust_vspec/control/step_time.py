"""Step time, learnt while serving.

    seconds = target(verified tokens) + passes * (draft + draft_row * batch) + any_draft * [something to verify]
              + row * batch + prefill * prompt tokens + context * tokens in KV

Steps of one kind (batch, gamma, verified width, prefill) share a cell that keeps their robust mean, so that gammas not
used of late are not forgotten; `fit.py` fits the equation to the cells. The cells' own distance from the fit corrects
it, gamma by gamma: graph buckets and kernels leave steps that no smooth function has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control.fit import BATCH, CONTEXT, PREFILL, REGRESSORS, Fit, isotonic
from vllm_hust_vspec.control.state import array, count, number

Floats = NDArray[np.float64]
Key = tuple[int, int, int, int]

CELLS = 192
RECENT = 5
SETTLED = 48
REFIT_EVERY = 8
SECONDS, KNOWN, STAMP, CORRECTION, LEVEL, DOUBT = range(REGRESSORS, REGRESSORS + 6)
COLUMNS = REGRESSORS + 6
PATIENCE = 12
UNSEEN_WEIGHT = 0.5
LEVEL_SHARED = 0.8
SHARED_FROM = 16.0
LEVEL_STEP = 1.5
MOST_MOVED = 0.3
HALF_LIFE = 256.0
# The share by which a step time that another run measured may be off, as a standard error.
RESUMED_DOUBT = 0.12
# The same for the first steps of a run: they pay for caches, allocators and kernels that later ones find ready, and
# would make the gamma that they ran with, the smallest, look slow for long.
COLD_STEPS = 3
COLD_DOUBT = 0.5


class Step(NamedTuple):
    """What a step's time depends on: requests, tokens verified, drafter passes, whether there is a draft to verify (or
    the chance of it), prompt tokens, tokens in KV. The order is that of the regressors in fit.py."""

    batch: float
    verify: float
    passes: float
    any_draft: float = 0.0
    prefill: float = 0.0
    context: float = 0.0


@dataclass(slots=True)
class Cell:
    row: int
    recent: list[float] = field(default_factory=list)


def bucket(batch: float) -> int:
    """Batches that count as one kind: each size up to 8, quarter octaves above."""
    return round(batch) if batch <= 8 else 8 + round(4.0 * math.log2(batch / 8.0))


class StepTime:
    """Predicts seconds per step; bounded by CELLS kinds of steps.

    settled: samples after which a cell's mean moves no slower. calibrate, calibration_weight: correction by gamma.
    """

    def __init__(self, *, settled: int | None = None, calibrate: bool = True, calibration_weight: float = 0.2) -> None:
        self._settled = float(SETTLED if settled is None else max(1, settled))
        self._calibration_weight = calibration_weight if calibrate else 0.0
        self._table: Floats = np.zeros((CELLS, COLUMNS))
        self._cells: dict[Key, Cell] = {}
        self._spread = 0.08
        self._loaded_spread = 0.3
        self._pending = 0
        self._clock = 0
        self._level = 0.0
        self._plain = False
        self.outliers = 0
        self.shifts = 0
        self.version = 0
        self.fit = Fit()
        self._corrections: dict[int, dict[int, tuple[float, float]]] = {}

    @property
    def known(self) -> bool:
        """Whether steps were seen that tell more of decoding than of prefill, or so many that it has to do."""
        return self._plain or self._clock >= PATIENCE

    def observe(self, gamma: int, step: Step, seconds: float) -> None:
        """Learn from a step that drafted with `gamma` and took `seconds` > 0."""
        self._clock += 1
        key = self._key(gamma, step)
        self._plain |= key[3] < 2
        cell = self._cells.get(key)
        if cell is None:
            self._open(key, step, seconds)
        else:
            self._update(cell, step, seconds, key[3] == 0)
        self._pending += 1
        if cell is None or self._pending >= (2 if self._clock < 32 else REFIT_EVERY):
            self._refit()

    def predict(self, steps: list[Step]) -> list[float]:
        """Seconds of such a step at gamma 0, 1, ...: the fit, corrected by what steps of this batch and gamma (or the
        nearest gamma) took, and never less for a larger gamma."""
        near = self._corrections.get(bucket(steps[0].batch), {})
        values, weights = [], []
        for gamma, step in enumerate(steps):
            seconds, weight = self.fit.seconds(step), UNSEEN_WEIGHT
            if near:
                correction, seen = near[gamma if gamma in near else min(near, key=lambda g: abs(g - gamma))]
                seconds, weight = seconds * (1.0 + correction), seen if gamma in near else weight
            values.append(max(seconds, 1e-9))
            weights.append(weight)
        return isotonic(values, weights)

    def sigmas(self, steps: list[Step]) -> list[float]:
        """Standard errors of the predicted seconds."""
        return self.fit.sigmas(np.array(steps))

    @staticmethod
    def _key(gamma: int, step: Step) -> Key:
        width = max(0, round(step.verify / step.batch) - 1)
        load = 0 if step.prefill <= 0 else 1 if step.prefill <= 2.0 * step.verify else 2
        return bucket(step.batch), gamma, width, load

    def _open(self, key: Key, step: Step, seconds: float) -> None:
        if len(self._cells) < CELLS:
            row = len(self._cells)
        else:
            oldest = min(self._cells, key=lambda k: self._table[self._cells[k].row, STAMP])
            row = self._cells.pop(oldest).row
        known = 1.0
        if self.version:
            expected = max(self.fit.seconds(step), 0.0)
            bound = 2.0 * expected + 3.0 * self.sigmas([step])[0]
            if seconds > bound > 0.0:
                self.outliers += 1
                seconds, known = bound, 0.5
        self._cells[key] = Cell(row, [1.0])
        doubt = COLD_DOUBT if self._clock <= COLD_STEPS else 0.0
        self._table[row] = (*step, seconds, known, self._clock, 0.0, self._level, doubt)

    def _update(self, cell: Cell, step: Step, seconds: float, plain: bool) -> None:
        row = self._table[cell.row]
        values = row.tolist()
        doubt = abs(self._level - values[LEVEL]) + values[DOUBT]
        trusted = _trusted(values[KNOWN], doubt, self._spread)
        stale = doubt > 0.0 and trusted < 1.0
        if stale:
            cell.recent = []
            self._pending = REFIT_EVERY
        mean, known = values[SECONDS], min(trusted + 1.0, self._settled)
        moved = self.fit.seconds(step) - self.fit.seconds(values) if self.version else 0.0
        if plain:
            moved = min(max(moved, -MOST_MOVED * mean), MOST_MOVED * mean)
        expected = max(mean + moved, 0.1 * mean)
        ratio = seconds / expected
        cell.recent = [*cell.recent[1 - RECENT :], ratio]
        young = known < RECENT
        spread = self._spread if plain else self._loaded_spread
        limit = max(3.5 * spread, 0.1, 3.0 * doubt)
        clipped = min(max(ratio, 1.0 - limit), 1.0 + limit)
        ranked = sorted(cell.recent)
        middle = ranked[(len(ranked) - 1) // 2]
        usual = max(2.5 * spread, 0.08)
        most = len(ranked) > 1 and (ranked[1] > 1.0 + 0.5 * usual or ranked[-2] < 1.0 - 0.5 * usual)
        shifted = not young and most and abs(middle - 1.0) > usual
        if stale:
            factor = clipped
        elif young:
            factor = middle
        else:
            factor = middle if shifted else 1.0 + (clipped - 1.0) / known
            self.outliers += clipped != ratio
            surprise = 1.25 * min(abs(ratio - 1.0), 0.5)
            if plain:
                self._spread += 0.02 * (surprise - self._spread)
            else:
                self._loaded_spread += 0.05 * (surprise - self._loaded_spread)
        if shifted:
            self.shifts += 1
            known = float(RECENT)
        if plain and values[KNOWN] >= SHARED_FROM:
            shared = min(max(1.0 + LEVEL_SHARED * (factor - 1.0), 1.0 / LEVEL_STEP), LEVEL_STEP)
            self._table[:, SECONDS] *= shared
            self._level += math.log(shared)
        cell.recent = [past / factor for past in cell.recent]
        trust = min(1.0, limit / max(abs(ratio - 1.0), 1e-9)) / max(spread, 0.04) * min(mean / expected, 1.5)
        self.fit.learn_within(
            (step.prefill - values[PREFILL]) / mean,
            (step.context - values[CONTEXT]) / mean,
            (seconds - expected) / mean,
            trust,
        )
        row[:REGRESSORS] += (np.array(step) - row[:REGRESSORS]) / known
        row[SECONDS] = max(mean * factor + moved / known, 0.1 * mean * factor)  # stays positive
        row[KNOWN], row[STAMP], row[LEVEL], row[DOUBT] = known, self._clock, self._level, 0.0

    def _refit(self) -> None:
        self._pending = 0
        self.version += 1
        table = self._table[: len(self._cells)]
        age = self._clock - table[:, STAMP]
        latest = int(age.argmin())
        doubt = np.abs(self._level - table[:, LEVEL]) + table[:, DOUBT]
        known = _trusted(table[:, KNOWN], doubt, self._spread)
        predicted = self.fit.solve(table[:, :REGRESSORS], table[:, SECONDS], known, age, latest, self._spread)
        if self._calibration_weight:
            gap = np.clip(table[:, SECONDS] / predicted - 1.0, -0.5, 0.5) * (known / (known + 4.0))
            table[:, CORRECTION] += self._calibration_weight * (gap - table[:, CORRECTION])
            self._index_corrections(table, known)

    def _index_corrections(self, table: Floats, trusted: Floats) -> None:
        sums: dict[int, dict[int, tuple[float, float]]] = {}
        fresh = 0.2 + 0.8 * np.exp2((table[:, STAMP] - self._clock) / HALF_LIFE)
        known, corrections = (trusted * fresh).tolist(), table[:, CORRECTION].tolist()
        for (size, gamma, _, load), cell in self._cells.items():
            if load == 0:  # prompt tokens would blame the gamma for what the model of prefill misses
                near = sums.setdefault(size, {})
                total, weight = near.get(gamma, (0.0, 0.0))
                near[gamma] = total + known[cell.row] * corrections[cell.row], weight + known[cell.row]
        self._corrections = {
            size: {gamma: (total / weight, weight) for gamma, (total, weight) in near.items()}
            for size, near in sums.items()
        }

    def resume(self) -> None:
        """Begin a new run with what the last one left: doubted, so that the first step of a kind outweighs it."""
        table = self._table[: len(self._cells)]
        table[:, DOUBT] = RESUMED_DOUBT
        table[:, LEVEL] = self._level
        if len(table):
            self._refit()

    def dump(self) -> dict[str, Any]:
        rows = self._table.tolist()
        cells = sorted(self._cells.items(), key=lambda item: item[1].row)
        return {
            "cells": [[list(key), rows[cell.row], list(cell.recent)] for key, cell in cells],
            "corrections": [[size, sorted(near.items())] for size, near in self._corrections.items()],
            "spread": self._spread,
            "loaded_spread": self._loaded_spread,
            "pending": self._pending,
            "clock": self._clock,
            "level": self._level,
            "plain": self._plain,
            "version": self.version,
            "outliers": self.outliers,
            "shifts": self.shifts,
            "fit": self.fit.dump(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Fill a new model. Raises KeyError, TypeError or ValueError where the state does not fit."""
        if len(state["cells"]) > CELLS:
            raise ValueError("it has too many cells")
        for row, (key, values, recent) in enumerate(state["cells"]):
            size, gamma, width, load = (count(part) for part in key)
            self._cells[size, gamma, width, load] = Cell(row, [number(value) for value in recent[-RECENT:]])
            self._table[row] = array(values, (COLUMNS,))
            if min(self._table[row, SECONDS], self._table[row, KNOWN], self._table[row, BATCH]) <= 0.0:
                raise ValueError("it has a cell without samples")
        if len(self._cells) != len(state["cells"]):
            raise ValueError("it has a cell twice")
        self._corrections = {
            count(size): {count(gamma): (number(value, -1.0, 1.0), number(seen, 0.0)) for gamma, (value, seen) in near}
            for size, near in state["corrections"]
        }
        self._spread = number(state["spread"], 0.0, 1.0)
        self._loaded_spread = number(state["loaded_spread"], 0.0, 1.0)
        self._pending, self._clock = count(state["pending"]), count(state["clock"])
        self._level = number(state["level"])
        self._plain, self.version = bool(state["plain"]), count(state["version"])
        self.outliers, self.shifts = count(state["outliers"]), count(state["shifts"])
        self.fit.load(state["fit"])

    def summary(self) -> dict[str, Any]:
        return {
            **self.fit.summary(),
            "spread": round(self._spread, 4),
            "kinds_of_steps": len(self._cells),
            "outliers": self.outliers,
            "shifts": self.shifts,
        }


def _trusted(known: Any, doubt: Any, spread: float) -> Any:
    """Samples that a mean is worth whose level is uncertain by `doubt`, a share of it, beside its own noise."""
    return known / (1.0 + known * (doubt / max(spread, 0.02)) ** 2)
