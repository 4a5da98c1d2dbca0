"""What becomes of a draft at each position: is it offered, is it accepted.

Feedback is censored: gamma 0 sees nothing, and a rejection hides every later position. So three rates are kept for
each position j, each from the drafts that can tell it:
    offer   P(the drafter offers j or more | j or more were asked for), the width that is verified
    follow  P(it offers j or more | j - 1 were accepted, j or more were asked for)
    accept  P(draft j is accepted | it was offered and j - 1 were accepted)
The chance to get j tokens is the product of follow * accept up to j: exact for a drafter that offers drafts in bursts,
where "offered" and "accepted" are not independent.
"""

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
FAST = 4.0
CHANGE_SIGMAS = 3.5
FIRST_ACCEPT = 0.7
PRIOR = 2.0
LIKENESS = 5.0
LIKENESS_FADES = 12.0
CEILING = 0.995
OFFER, FOLLOW, ACCEPT = 0, 1, 2
TRIALS, HITS = 0, 1

Counts = NDArray[np.float64]


class Acceptance:
    """Discounted counts by position, with a fast copy that replaces them when the workload changes."""

    def __init__(self, positions: int, weight: float, memory: int | None) -> None:
        self.positions = positions
        self.changes = 0
        self._weight = weight
        self._memory = memory
        self._slow: Counts = np.zeros((3, 2, positions))
        self._fast: Counts = np.zeros((3, 2, positions))
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
            slow, fast = self._keep(verified, block)
            self._slow[kind, :, :deepest] *= slow
            self._fast[kind, :, :deepest] *= fast
        self._slow += new
        self._fast += new
        self._follow_changes(deepest)
        self._refresh()

    def _keep(self, verified: int, block: int) -> tuple[float, float]:
        if self._memory is not None:
            return float(np.exp(-1.0 / self._memory)), float(np.exp(-FAST / self._memory))
        blocks = min(verified, BLOCK) / block
        return (1.0 - self._weight) ** blocks, max(0.0, 1.0 - FAST * self._weight) ** blocks

    def _follow_changes(self, deepest: int) -> None:
        for kind in (ACCEPT, FOLLOW):
            slow_n, slow_k = self._slow[kind]
            fast_n, fast_k = self._fast[kind]
            for j in range(deepest):
                n, m = float(slow_n[j]), float(fast_n[j])
                if m < 8.0 or n < 1.5 * m:
                    continue
                p, q = float(slow_k[j]) / n, float(fast_k[j]) / m
                middle = min(max((float(slow_k[j]) + 1.0) / (n + 2.0), 0.02), 0.98)
                if abs(q - p) > CHANGE_SIGMAS * (middle * (1.0 - middle) / m) ** 0.5:
                    self.changes += 1
                    self._slow[:, :, : j + 1] = self._fast[:, :, : j + 1]
                    self._slow[:, :, j + 1 :] *= 0.25
                    return

    def doubt(self, trials: float, above: int = 0) -> None:
        """Keep the rates of the positions after `above` but trust them no more than `trials` drafts would tell."""
        for counts in (self._slow, self._fast):
            late = counts[:, :, above:]
            late *= np.minimum(1.0, trials / np.maximum(late[:, TRIALS], 1e-9))[:, None, :]
        self._refresh()

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
        return {"slow": self._slow.tolist(), "fast": self._fast.tolist(), "changes": self.changes}

    def load(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError where the state does not fit."""
        slow, fast = (array(state[key], self._slow.shape) for key in ("slow", "fast"))
        if min(slow.min(initial=0.0), fast.min(initial=0.0)) < 0.0:
            raise ValueError("its acceptance counts are negative")
        self._slow, self._fast, self.changes = slow, fast, count(state["changes"])
        self._refresh()

    def summary(self) -> dict[str, Any]:
        """By position: acceptance, how often a draft is offered, and the trials that tell."""
        return {
            "acceptance": [round(rate, 4) for rate in self.accept],
            "offer_rate": [round(rate, 4) for rate in self.offer],
            "trials": [round(trials, 1) for trials in self.trials],
            "changes": self.changes,
        }


def _posterior(hits: float, trials: float, prior: float) -> float:
    """Rate after `hits` of `trials`; the prior fades faster than the trials grow, for it is only a guess."""
    weight = PRIOR / (1.0 + trials)
    return (hits + weight * prior) / (trials + weight)
