"""The texts that are served: fixed by the seed, whatever the gammas, so that runs of one seed compare like with like.

Each token of a text has its luck, a uniform number: a draft for it is accepted where the luck is below the acceptance
rate of its position. And for each token it is settled whether the drafter offers anything there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
DEEPEST = 16  # drafts in a row that are looked at

RATES: dict[str, tuple[float, ...]] = {
    "high": (0.92, 0.90, 0.88, 0.86),
    "middling": (0.70, 0.64, 0.60, 0.56),
    "low": (0.30, 0.22, 0.18, 0.15),
    "none": (0.03,),
}
MIXED = ("high", "middling", "low")


@dataclass(frozen=True, slots=True)
class Offers:
    """When a look-up drafter offers drafts: in bursts of `burst` tokens on average, at a share of all tokens.

    ramp: tokens of an answer until the share is reached; it rises evenly from none, as there is little to look up yet.
    """

    share: float
    burst: float
    ramp: int = 0


@dataclass(frozen=True, slots=True)
class Nature:
    """What a text is like to a drafter. rates: acceptance by position given the position before, the last one holds for
    all deeper ones, or the name of one in RATES, or "mixed" (each request one of MIXED). offers: None = always."""

    rates: str | tuple[float, ...]
    offers: Offers | None = None


class Texts:
    """All requests of a job. Token t of request i is at i * width + t in the arrays that accepted() and offered() give.

    lengths, prompts: tokens to serve and prompt tokens of each request.
    """

    def __init__(self, lengths: Sequence[int], prompts: Sequence[int], seed: Sequence[int]) -> None:
        self.lengths = np.array(lengths, dtype=np.int64)
        self.prompts = np.array(prompts, dtype=np.int64)
        self.width = int(self.lengths.max(initial=0)) + DEEPEST + 1
        self.names = [f"r{request}" for request in range(len(self.lengths))]
        self._seed = tuple(seed)
        self._luck = np.random.default_rng((*seed, 1)).random((len(self.lengths), self.width))
        self._accepted: dict[str | tuple[float, ...], Ints] = {}
        self._offered: dict[Offers, Ints] = {}

    def accepted(self, rates: str | tuple[float, ...]) -> Ints:
        """Drafts in a row that would be accepted from each token on, at most DEEPEST."""
        if rates not in self._accepted:
            requests = len(self.lengths)
            if rates == "mixed":
                kinds = np.array([_deep(RATES[name]) for name in MIXED])
                by_request = kinds[np.random.default_rng((*self._seed, 2)).integers(0, len(MIXED), requests)]
            else:
                by_request = np.tile(_deep(RATES[rates] if isinstance(rates, str) else rates), (requests, 1))
            run = np.zeros((requests, self.width), dtype=np.int64)
            alive = np.ones((requests, self.width), dtype=bool)
            for j in range(DEEPEST):
                lucky = np.zeros_like(alive)
                lucky[:, : self.width - j] = self._luck[:, j:] < by_request[:, j : j + 1]
                alive &= lucky
                run += alive
            self._accepted[rates] = run.ravel()
        return self._accepted[rates]

    def offered(self, offers: Offers | None) -> Ints | None:
        """1 where the drafter offers drafts, else 0; None for a drafter that always does."""
        if offers is None:
            return None
        if offers not in self._offered:
            draws = np.random.default_rng((*self._seed, 3)).random((self.width, len(self.lengths)))
            share = np.full(self.width, min(offers.share, 0.98))
            if offers.ramp:
                share *= np.minimum(1.0, np.arange(self.width) / offers.ramp)
            leave, enter = 1.0 / offers.burst, np.minimum(1.0, share / (1.0 - share) / offers.burst)
            on = draws[0] < share[0]
            out = np.empty((self.width, len(self.lengths)), dtype=np.int64)
            for token in range(self.width):
                out[token] = on
                on = on != (draws[token] < np.where(on, leave, enter[token]))
            self._offered[offers] = np.ascontiguousarray(out.T).ravel()
        return self._offered[offers]


def _deep(rates: Sequence[float]) -> list[float]:
    return [rates[min(j, len(rates) - 1)] for j in range(DEEPEST)]


def expected_tokens(nature: Nature, gammas: Sequence[int]) -> list[float]:
    """Tokens per request and step in the long run at each gamma, first token included; ramps left out."""
    names = MIXED if nature.rates == "mixed" else (nature.rates,)
    share = 1.0 if nature.offers is None else nature.offers.share
    chains = [np.cumprod(_deep(RATES[name] if isinstance(name, str) else name)) for name in names]
    if len(chains) == 1:
        return [1.0 + share * float(chains[0][:gamma].sum()) for gamma in gammas]
    # Requests that are served slower are there longer: tokens and steps of each kind in the long run.
    return [len(chains) / sum(1.0 / (1.0 + share * float(chain[:gamma].sum())) for chain in chains) for gamma in gammas]
