"""The regression behind StepTime: a ridge whose priors say what is usual of accelerators and CPUs.

target() is linear between powers of two, so a step that is bound by memory when narrow and by arithmetic when wide
fits, and what was seen with 64 requests and one draft each serves 128 requests with none. Weak priors fill in what was
never seen: a wider step costs little more, costs grow on as they grew before, a drafter pass costs a twentieth of a
step, a prompt token what a verified token costs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control.state import array

Floats = NDArray[np.float64]

REGRESSORS = 6
BATCH, VERIFY, PASSES, ANY, PREFILL, CONTEXT = range(REGRESSORS)
KNOTS = 15
LINEAR = 6
DRAFT, DRAFT_ROW, SOMETHING, ROW, PROMPT, CACHE = range(LINEAR)
NAMES = ("draft_pass", "draft_pass_per_request", "any_draft", "per_request", "per_prompt_token", "per_context_token")
MISFIT = 0.02
WITHIN_KEEP = 0.99
WIDER = 0.03
WIDER_SIGMA = 0.5
WIDE = 9
SAME_SIGMA = 0.3


class Fit:
    """Coefficients in seconds; `target` at 1, 2, 4, ... verified tokens."""

    def __init__(self) -> None:
        self.target: list[float] = [0.0] * KNOTS
        self.linear: list[float] = [0.0] * LINEAR
        self._within: Floats = np.zeros((2, 3))
        self._covariance: Floats = np.zeros((KNOTS + LINEAR, KNOTS + LINEAR))
        self._units: Floats = np.ones(LINEAR)

    def seconds(self, step: Sequence[float]) -> float:
        """The uncorrected time of a step, from its regressors."""
        verify = max(step[VERIFY], 1.0)
        knot = min(math.frexp(verify)[1] - 1, KNOTS - 2)
        low, high = self.target[knot], self.target[knot + 1]
        linear = self.linear
        return (
            low
            + (high - low) * (verify / (1 << knot) - 1.0)
            + step[PASSES] * (linear[DRAFT] + linear[DRAFT_ROW] * step[BATCH])
            + step[ANY] * linear[SOMETHING]
            + step[BATCH] * linear[ROW]
            + step[PREFILL] * linear[PROMPT]
            + step[CONTEXT] * linear[CACHE]
        )

    def learn_within(self, prefill: float, context: float, off: float, trust: float) -> None:
        """Learn the cost of prefill and context from the variation inside a cell.

        prefill, context: distance from the cell's mean, over its mean time; off: the share of the time that the
        present coefficients do not explain; trust: weight of this step, the inverse of the usual size of off.
        """
        if prefill == 0.0 and context == 0.0:
            return
        x, z = prefill * trust, context * trust
        y = off * trust + x * self.linear[PROMPT] + z * self.linear[CACHE]
        self._within *= WITHIN_KEEP
        self._within += ((x * x, x * z, x * y), (x * z, z * z, z * y))

    def solve(self, steps: Floats, seconds: Floats, known: Floats, age: Floats, latest: int, spread: float) -> Floats:
        """Fit to cells: steps [cells, REGRESSORS], their mean seconds, samples and age; returns predicted seconds."""
        scale = float(seconds[latest])
        rows = max(float(steps[latest, BATCH]), 1.0)
        prompts = max(float(steps[:, PREFILL].max()), 1.0)
        cache = max(float(steps[:, CONTEXT].max()), 1.0)
        self._units = np.array((1.0, rows, 1.0, rows, prompts, cache))
        x = self._design(steps)
        verify = np.maximum(steps[:, VERIFY], 1.0)
        load = np.minimum(steps[:, PREFILL] / verify, 4.0)
        misfit = MISFIT + 0.04 * load + 0.02 * age / (age + 1000.0)
        weight = 1.0 / (seconds * seconds * (spread * spread / known + misfit * misfit))
        weighted = x * weight[:, None]
        left = weighted.T @ x + _prior_left(scale, prompts)
        right = weighted.T @ seconds + _prior_right(scale, rows)
        inner = self._within
        unit = np.array((1.0 / prompts, 1.0 / cache))
        left[KNOTS + PROMPT :, KNOTS + PROMPT :] += inner[:, :2] * unit * unit[:, None]
        right[KNOTS + PROMPT :] += inner[:, 2] * unit
        self._covariance = np.linalg.inv(left)
        solution = self._covariance @ right
        np.maximum(solution[KNOTS:], 0.0, out=solution[KNOTS:])
        weights = 1.0 / np.maximum(self._covariance.diagonal()[:KNOTS], 1e-30)
        rising = isotonic(np.maximum(solution[:KNOTS], 0.02 * scale).tolist(), weights.tolist())
        solution[:KNOTS] = rising
        self.target = solution[:KNOTS].tolist()
        self.linear = (solution[KNOTS:] / self._units).tolist()
        predicted: Floats = np.maximum(x @ solution, 1e-9)
        return predicted

    def sigmas(self, steps: Floats) -> list[float]:
        """Standard error of the time of steps [n, REGRESSORS], seconds."""
        x = self._design(steps)
        errors: list[float] = np.sqrt(np.maximum(((x @ self._covariance) * x).sum(axis=1), 0.0)).tolist()
        return errors

    def dump(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "linear": self.linear,
            "within": self._within.tolist(),
            "covariance": self._covariance.tolist(),
            "units": self._units.tolist(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError where the state does not fit."""
        target, linear = array(state["target"], (KNOTS,)), array(state["linear"], (LINEAR,))
        within = array(state["within"], self._within.shape)
        covariance = array(state["covariance"], self._covariance.shape)
        units = array(state["units"], (LINEAR,))
        if units.min() <= 0.0:
            raise ValueError("its units are not positive")
        self.target, self.linear = target.tolist(), linear.tolist()
        self._within, self._covariance, self._units = within, covariance, units

    def summary(self) -> dict[str, Any]:
        """Milliseconds: the target's step by verified tokens, and the linear terms."""
        return {
            "target_ms": {str(1 << k): round(seconds * 1e3, 3) for k, seconds in enumerate(self.target)},
            **{f"{name}_ms": round(value * 1e3, 6) for name, value in zip(NAMES, self.linear, strict=True)},
        }

    def _design(self, steps: Floats) -> Floats:
        verify = np.maximum(steps[:, VERIFY], 1.0)
        knot = np.minimum(np.frexp(verify)[1] - 1, KNOTS - 2)
        part = verify / np.exp2(knot) - 1.0
        x = np.zeros((len(steps), KNOTS + LINEAR))
        every = np.arange(len(steps))
        x[every, knot] = 1.0 - part
        x[every, knot + 1] = part
        x[:, KNOTS + DRAFT] = steps[:, PASSES]
        x[:, KNOTS + DRAFT_ROW] = steps[:, PASSES] * steps[:, BATCH]
        x[:, KNOTS + SOMETHING] = steps[:, ANY]
        x[:, KNOTS + ROW] = steps[:, BATCH]
        x[:, KNOTS + PROMPT] = steps[:, PREFILL]
        x[:, KNOTS + CACHE] = steps[:, CONTEXT]
        x[:, KNOTS:] /= self._units
        return x


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence, by weighted squares, that never falls."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            high, heavy, many = pools.pop()
            low, light, few = pools.pop()
            total = light + heavy
            pools.append(((low * light + high * heavy) / total, total, few + many))
    return [value for value, _, size in pools for _ in range(size)]


def _penalties() -> tuple[Floats, Floats]:
    """Prior rows and what they should give, in units of the step time at hand; first what a wider step costs."""
    rows, wanted = [], []

    def expect(terms: dict[int, float], value: float, sigma: float) -> None:
        row = np.zeros(KNOTS + LINEAR)
        for column, factor in terms.items():
            row[column] = factor / sigma
        rows.append(row)
        wanted.append(value / sigma)

    for k in range(KNOTS - 1):
        expect({k + 1: 1.0, k: -1.0}, WIDER, WIDER_SIGMA)
    for k in range(1, KNOTS - 1):
        expect({k + 1: 1.0, k: -3.0, k - 1: 2.0}, 0.0, 0.3)
    for k in range(KNOTS):
        expect({k: 1.0}, 1.0, 30.0)
    expect({KNOTS + DRAFT: 1.0}, 0.04, 0.15)
    expect({KNOTS + DRAFT_ROW: 1.0}, 0.01, 0.1)
    expect({KNOTS + SOMETHING: 1.0}, 0.0, 0.05)
    expect({KNOTS + ROW: 1.0}, 0.0, 0.05)
    expect({KNOTS + PROMPT: 1.0}, 0.0, 30.0)
    expect({KNOTS + CACHE: 1.0}, 0.0, 0.1)
    return np.array(rows), np.array(wanted)


_ROWS, _WANTED = _penalties()
_LEFT = _ROWS.T @ _ROWS
_DOUBLINGS = np.exp2(np.arange(KNOTS - 1))


def _prior_left(scale: float, prompts: float) -> Floats:
    """The priors, and that a prompt token costs about what a verified token costs in a wide step."""
    same = np.zeros(KNOTS + LINEAR)
    same[[KNOTS + PROMPT, WIDE + 1, WIDE]] = 1.0, -prompts / (1 << WIDE), prompts / (1 << WIDE)
    left: Floats = (_LEFT + np.outer(same, same) / SAME_SIGMA**2) / (scale * scale)
    return left


def _prior_right(scale: float, rows: float) -> Floats:
    wanted = _WANTED.copy()
    wanted[: KNOTS - 1] *= np.minimum(_DOUBLINGS / rows, 16.0)
    right: Floats = _ROWS.T @ wanted / scale
    return right
