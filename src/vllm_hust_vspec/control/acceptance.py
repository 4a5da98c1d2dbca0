"""What becomes of a draft at each position: is it offered, is it accepted.

Feedback is censored: gamma 0 sees nothing, and a rejection hides every later position. So three rates are kept for
each position j, each from the drafts that can tell it:
    offer   P(the drafter offers j or more | j or more were asked for), the width that is verified
    follow  P(it offers j or more | j - 1 were accepted, j or more were asked for)
    accept  P(draft j is accepted | it was offered and j - 1 were accepted)
The chance to get j tokens is the product of follow * accept up to j: exact for a drafter that offers drafts in bursts,
where "offered" and "accepted" are not independent.
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control.state import array, count

# Verified drafts to which `weight` belongs. What a drafter offers follows the place in the text and changes within a
# few steps; whether the target accepts it changes more slowly.
BLOCK = 32
OFFER_BLOCK = 16
# The latest drafts are watched through windows of so many; the workload has changed where one of them is less likely
# than CHANGE_NATS to be of the same rate as what was there before. AFTER: trust (in drafts) left to deeper positions.
WINDOWS = np.array((5.0, 10.0, 20.0, 40.0, 80.0))
CHANGE_NATS = 5.5
AFTER = 4.0
# What a run leaves to the next: its long average, for the last moment may have been one request's.
LONG = 0.1
RESUMED_TRUST = 32.0
FIRST_ACCEPT = 0.7
PRIOR = 2.0
LIKENESS = 5.0
LIKENESS_FADES = 12.0
CEILING = 0.995
OFFER, FOLLOW, ACCEPT = 0, 1, 2
TRIALS, HITS = 0, 1

Counts = NDArray[np.float64]


class Acceptance:
    """Discounted counts by position, and windows of the latest that replace them when the workload changes."""

    def __init__(self, positions: int, weight: float, memory: int | None) -> None:
        self.positions = positions
        self.changes = 0
        self._weight = weight
        self._memory = memory
        self._slow: Counts = np.zeros((3, 2, positions))
        self._long: Counts = np.zeros((3, 2, positions))
        self._windows: Counts = np.zeros((len(WINDOWS), 3, 2, positions))
        self._refresh()

    def observe(self, asked: int, pairs: "Counter[tuple[int, int]]") -> None:
        """Count drafts that were asked for with gamma `asked`. pairs: (proposed, accepted) -> requests."""
        fresh = [[[0.0] * self.positions, [0.0] * self.positions] for _ in range(3)]
        verified = 0
        for (proposed, accepted), requests in pairs.items():
            depth = min(max(asked, proposed), self.positions)
            verified += requests if depth else 0
            for j in range(depth):
                offered = proposed > j
                fresh[OFFER][TRIALS][j] += requests
                fresh[OFFER][HITS][j] += requests * offered
                if accepted >= j:
                    fresh[FOLLOW][TRIALS][j] += requests
                    fresh[FOLLOW][HITS][j] += requests * offered
                    if offered:
                        fresh[ACCEPT][TRIALS][j] += requests
                        fresh[ACCEPT][HITS][j] += requests * (accepted > j)
        if not verified:
            return
        deepest = min(max(asked, max(proposed for proposed, _ in pairs)), self.positions)
        new = np.array(fresh)
        for kind, block in ((OFFER, OFFER_BLOCK), (FOLLOW, OFFER_BLOCK), (ACCEPT, BLOCK)):
            keep = self._keep(verified, block)
            self._slow[kind, :, :deepest] *= keep
            self._long[kind, :, :deepest] *= keep**LONG
        self._windows[..., :deepest] *= np.exp(-verified / WINDOWS)[:, None, None, None]
        self._slow += new
        self._long += new
        self._windows += new
        self._follow_changes(deepest)
        self._refresh()

    def _keep(self, verified: int, block: int) -> float:
        if self._memory is not None:
            return math.exp(-1.0 / self._memory)
        return float((1.0 - self._weight) ** (min(verified, BLOCK) / block))

    def _follow_changes(self, deepest: int) -> None:
        """Where the latest drafts of a position fare differently from those before, forget those before.

        The test is a likelihood ratio of two rates against one, for each window and position (Basseville and
        Nikiforov, Detection of Abrupt Changes, 1993, chapter 2).
        """
        recent = self._windows[:, FOLLOW:, :, :deepest]
        before = np.maximum(self._slow[FOLLOW:, :, :deepest] - recent, 0.0)
        both = recent + before
        evidence = _likelihood(recent) + _likelihood(before) - _likelihood(both)
        evidence[before[:, :, TRIALS] < 4.0] = 0.0
        if evidence.max(initial=0.0) < CHANGE_NATS:
            return
        window, _, position = np.unravel_index(int(evidence.argmax()), evidence.shape)
        self.changes += 1
        self._slow[:, :, : position + 1] = self._windows[window, :, :, : position + 1]
        self._windows[window:, :, :, : position + 1] = self._windows[window, :, :, : position + 1]
        for counts in (self._slow, *self._windows[window:]):
            _cap(counts[:, :, position + 1 :], AFTER)

    def doubt(self, trials: float, above: int = 0) -> None:
        """Keep the rates of the positions after `above` but trust them no more than `trials` drafts would tell."""
        for counts in (self._slow, *self._windows):
            _cap(counts[:, :, above:], trials)
        self._refresh()

    def resume(self) -> None:
        """Begin a new run with what the last one left: its long average, trusted a little."""
        self._slow = self._long.copy()
        self._windows[:] = 0.0
        self.doubt(RESUMED_TRUST)

    def _refresh(self) -> None:
        """Derive the rates, and for every gamma the expected tokens (mean, pessimistic, optimistic) and width."""
        counts = self._slow.tolist()
        accept, follow, offer = FIRST_ACCEPT, 1.0, 1.0
        self.accept: list[float] = []
        self.sigma: list[float] = []
        self.follow: list[float] = []
        self.offer: list[float] = []
        for j in range(self.positions):
            trials = counts[ACCEPT][TRIALS][j]
            likeness = LIKENESS / (1.0 + trials / LIKENESS_FADES) if j else PRIOR / (1.0 + trials)
            accept = min((counts[ACCEPT][HITS][j] + likeness * accept) / (trials + likeness), CEILING)
            self.accept.append(accept)
            self.sigma.append((max(accept * (1.0 - accept), 0.01) / (trials + PRIOR)) ** 0.5)
            follow = _posterior(counts[FOLLOW][HITS][j], counts[FOLLOW][TRIALS][j], follow if j > 1 else 1.0)
            self.follow.append(follow)
            offer = _posterior(counts[OFFER][HITS][j], counts[OFFER][TRIALS][j], offer)
            self.offer.append(offer)
        self.trials: list[float] = counts[ACCEPT][TRIALS]
        self.width = list(accumulate(self.offer, initial=0.0))
        self.tokens = self.tokens_at(0.0)

    def tokens_at(self, sigmas: float) -> list[float]:
        """Expected tokens per request and step for gamma 0..positions, acceptance shifted by that many sigmas."""
        total, alive = 1.0, 1.0
        out = [1.0]
        for accept, sigma, follow in zip(self.accept, self.sigma, self.follow, strict=True):
            alive *= follow * min(max(accept + sigmas * sigma, 0.0), CEILING)
            total += alive
            out.append(total)
        return out

    def hopeful(self, hope: float, above: int) -> list[float]:
        """Expected tokens for gamma 0..positions if, unseen, all positions after `above` had risen to `hope`."""
        total, alive = 1.0, 1.0
        out = [1.0]
        for j, (accept, follow) in enumerate(zip(self.accept, self.follow, strict=True)):
            alive *= accept * follow if j < above else max(accept, hope)
            total += alive
            out.append(total)
        return out

    def dump(self) -> dict[str, Any]:
        return {
            "slow": self._slow.tolist(),
            "long": self._long.tolist(),
            "windows": self._windows.tolist(),
            "changes": self.changes,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError where the state does not fit."""
        slow, long = (array(state[key], self._slow.shape) for key in ("slow", "long"))
        windows = array(state["windows"], self._windows.shape)
        if min(counts.min(initial=0.0) for counts in (slow, long, windows)) < 0.0:
            raise ValueError("its acceptance counts are negative")
        self._slow, self._long, self._windows, self.changes = slow, long, windows, count(state["changes"])
        self._refresh()

    def summary(self) -> dict[str, Any]:
        """By position: acceptance, how often a draft is offered, and the trials that tell."""
        return {
            "acceptance": [round(rate, 4) for rate in self.accept],
            "offer_rate": [round(rate, 4) for rate in self.offer],
            "trials": [round(trials, 1) for trials in self.trials],
            "changes": self.changes,
        }


def _likelihood(counts: Counts) -> Counts:
    """Log-likelihood, at their own rate, of counts [..., 2, positions] -> [..., positions]."""
    trials, hits = counts[..., TRIALS, :], counts[..., HITS, :]
    misses = np.maximum(trials - hits, 0.0)
    trials = np.maximum(trials, 1e-9)
    out: Counts = hits * np.log(np.maximum(hits / trials, 1e-9)) + misses * np.log(np.maximum(misses / trials, 1e-9))
    return out


def _cap(counts: Counts, trials: float) -> None:
    """Scale counts [3, 2, positions] in place to at most so many trials."""
    counts *= np.minimum(1.0, trials / np.maximum(counts[:, TRIALS], 1e-9))[:, None, :]


def _posterior(hits: float, trials: float, prior: float) -> float:
    """Rate after `hits` of `trials`; the prior fades faster than the trials grow, for it is only a guess."""
    weight = PRIOR / (1.0 + trials)
    return (hits + weight * prior) / (trials + weight)
