"""Step times out of a profile, and their correction by what is measured while serving."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from vllm_hust_vspec.control.state import count, number
from vllm_hust_vspec.settings.profile_file import ProfileFile

# A correction stays within these factors, and one sample moves it as if it were at most OUTLIER away from it: a stall
# of seconds is no property of a gamma.
LEAST, MOST = 0.05, 20.0
OUTLIER = 2.0
# Samples of a gamma until its correction stands on its own; before, the others' share it.
OWN = 4


class ProfileTime:
    """Predicted seconds of a step; `corrected` holds a factor per gamma on them."""

    def __init__(self, profile: ProfileFile, max_gamma: int, *, calibrate: bool, weight: float) -> None:
        """weight: of the newest sample in a correction. calibrate: False keeps every correction at 1."""
        self._profile = profile
        self._calibrate = calibrate
        self._weight = weight
        self._overhead = [interpolated(profile.per_gamma_overhead_ms, gamma) for gamma in range(max_gamma + 1)]
        self._log = [0.0] * (max_gamma + 1)
        self._samples = [0] * (max_gamma + 1)

    def steady(self, gamma: int, batch: int, context: int, prefill: int = 0) -> float:
        """Corrected seconds of a step in which `batch` requests verify gamma drafts and make gamma new ones."""
        ms = self._profile.target.ms(context, batch * (gamma + 1) + prefill) + self._overhead[gamma]
        ms += self._drafting(gamma, batch, context)
        return max(ms, 1e-3) / 1e3 * math.exp(self._factor(gamma))

    def _drafting(self, passes: int, batch: int, context: int) -> float:
        """Milliseconds of so many drafter passes, each over one token a request more in the KV cache."""
        draft = self._profile.draft
        if self._profile.draft_parallel:
            return draft.ms(context, batch * passes) if passes else 0.0
        return passes * draft.ms(context + batch * (passes - 1) / 2.0, batch)

    def observe(
        self, gamma: int, *, batch: int, context: int, verify: int, passes: int, prefill: int, seconds: float
    ) -> None:
        """Correct gamma's factor by a step that verified and drafted with it."""
        if not self._calibrate:
            return
        ms = self._profile.target.ms(context, verify + prefill) + self._overhead[gamma]
        ms += self._drafting(passes, batch, context)
        seen = min(max(math.log(seconds * 1e3 / max(ms, 1e-3)), math.log(LEAST)), math.log(MOST))
        known = self._samples[gamma]
        weight = max(self._weight, 1.0 / (known + 1)) if known < OWN else self._weight
        away = seen - self._log[gamma]
        if known >= 2:
            away = min(max(away, -math.log(OUTLIER)), math.log(OUTLIER))
        self._log[gamma] += weight * away
        self._samples[gamma] = min(known + 1, OWN)

    def _factor(self, gamma: int) -> float:
        """Logarithm of a gamma's factor: its own share by its samples, the rest that of the nearest measured gamma."""
        own = self._samples[gamma] / OWN
        if own >= 1.0 or not any(self._samples):
            return self._log[gamma] if own else 0.0
        others = [other for other, samples in enumerate(self._samples) if samples and other != gamma]
        if not others:
            return self._log[gamma]
        nearest = min(others, key=lambda other: (abs(other - gamma), other))
        return own * self._log[gamma] + (1.0 - own) * self._log[nearest]

    def measured(self, gamma: int) -> bool:
        """Whether a gamma's correction stands on its own."""
        return self._samples[gamma] >= OWN

    @property
    def corrected(self) -> list[float]:
        """The factor on the predicted time, by gamma."""
        return [math.exp(self._factor(gamma)) for gamma in range(len(self._log))]

    def dump(self) -> dict[str, Any]:
        return {"log": list(self._log), "samples": list(self._samples)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `dump` gave. Raises ValueError, KeyError or TypeError for anything else."""
        log = [number(value, math.log(LEAST), math.log(MOST)) for value in state["log"]]
        samples = [count(value, OWN) for value in state["samples"]]
        if {len(log), len(samples)} != {len(self._log)}:
            raise ValueError("its corrections do not match the largest gamma")
        self._log, self._samples = log, samples


def interpolated(table: Mapping[int, float], at: int) -> float:
    """The table's value at a key, on straight lines between the keys and level beyond them; 0 for an empty table."""
    if not table:
        return 0.0
    keys = sorted(table)
    if at <= keys[0]:
        return table[keys[0]]
    for low, high in pairwise(keys):
        if at <= high:
            return table[low] + (table[high] - table[low]) * (at - low) / (high - low)
    return table[keys[-1]]
