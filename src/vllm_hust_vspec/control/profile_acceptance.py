"""Acceptance by position for the profile policy: a given rate until enough drafts were verified, then what they showed.

p_j is the chance that draft j is accepted given that j - 1 were. A rejection hides the later positions, and a gamma
below j tells nothing of it, so each position counts the trials that reached it.
"""

from collections.abc import Mapping
from typing import Any

from vllm_hust_vspec.control.state import count, number

# Verified drafts that make one sample, the one that `weight` belongs to.
SAMPLE = 8
# Decisions after which a position that nobody looked at any more is open again, and the longest that this may grow to.
STALE, STALE_MOST = 1024, 8192
MOST_TRIALS = 1_000_000


class ProfileAcceptance:
    """rates: by position, as trusted now. tokens: expected tokens per request and step, by gamma (0 first)."""

    def __init__(self, positions: int, given: float, weight: float, needed: int) -> None:
        """given: the rate of a position with fewer than `needed` trials. weight: of the newest SAMPLE drafts."""
        self._given = given
        self._weight = weight
        self._needed = needed
        self._measured = [given] * positions
        self._trials = [0] * positions
        self._unseen = [0] * positions
        self._patience = [STALE] * positions
        self._refresh()

    @property
    def trusted(self) -> bool:
        """Whether the first position rests on measurements."""
        return not self._trials or self._trials[0] >= self._needed

    def observe(self, pairs: Mapping[tuple[int, int], int]) -> None:
        """Count verified drafts. pairs: (proposed, accepted) -> requests."""
        for j in range(len(self._trials)):
            trials = sum(n for (proposed, accepted), n in pairs.items() if proposed > j and accepted >= j)
            if not trials:
                continue
            hits = sum(n for (_, accepted), n in pairs.items() if accepted > j)
            known = self._trials[j]
            weight = max(
                1.0 - (1.0 - self._weight) ** (trials / SAMPLE),
                trials / (known + trials) if known < 2 * self._needed else 0.0,
            )
            self._measured[j] += weight * (hits / trials - self._measured[j])
            self._trials[j] = min(known + trials, MOST_TRIALS)
            self._unseen[j] = 0
            if self._trials[j] >= self._needed and self._measured[j] >= self._given:
                self._patience[j] = STALE
        self._refresh()

    def pass_over(self) -> None:
        """One more decision was made. A position that none has tested for long is as open as at the start."""
        for j, trials in enumerate(self._trials):
            if not trials:
                continue
            self._unseen[j] += 1
            if self._unseen[j] >= self._patience[j]:
                self._trials[j] = self._unseen[j] = 0
                self._patience[j] = min(2 * self._patience[j], STALE_MOST)
                self._refresh()

    def _refresh(self) -> None:
        self.rates = [
            rate if trials >= self._needed else self._given
            for rate, trials in zip(self._measured, self._trials, strict=True)
        ]
        self.tokens, reach = [1.0], 1.0
        for rate in self.rates:
            reach *= rate
            self.tokens.append(self.tokens[-1] + reach)

    def dump(self) -> dict[str, Any]:
        return {
            "measured": list(self._measured),
            "trials": list(self._trials),
            "unseen": list(self._unseen),
            "patience": list(self._patience),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `dump` gave. Raises ValueError, KeyError or TypeError for anything else."""
        positions = len(self._trials)
        measured = [number(value, 0.0, 1.0) for value in state["measured"]]
        trials = [count(value, MOST_TRIALS) for value in state["trials"]]
        unseen = [count(value, STALE_MOST) for value in state["unseen"]]
        patience = [max(STALE, count(value, STALE_MOST)) for value in state["patience"]]
        if {len(measured), len(trials), len(unseen), len(patience)} != {positions}:
            raise ValueError("its acceptance does not match the largest gamma")
        self._measured, self._trials, self._unseen, self._patience = measured, trials, unseen, patience
        self._refresh()
