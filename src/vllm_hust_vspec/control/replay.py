"""What it costs to resume: a drafter that rested at gamma 0 first computes what it skipped, in one replay."""

from typing import Any

from vllm_hust_vspec.control.fit import DRAFT, PROMPT, Fit
from vllm_hust_vspec.control.state import number

NEWEST = 0.3
# Steps over which a move away from gamma 0 must earn what its replay costs.
PAYBACK = 100.0


class ReplayPrice:
    """Seconds of a replay, by the tokens that it computes.

    Until one was seen, a token costs the drafter what a prompt token costs the target, by the ratio of their passes.
    """

    def __init__(self) -> None:
        self._per_token: float | None = None

    def seconds(self, owed: int, fit: Fit) -> float:
        if owed <= 0:
            return 0.0
        per_token = self._per_token
        if per_token is None:
            per_token = fit.linear[PROMPT] * min(1.0, fit.linear[DRAFT] / max(fit.target[0], 1e-9))
        return owed * per_token

    def observe(self, owed: int, extra: float) -> None:
        """A step with a replay of `owed` > 0 tokens took `extra` seconds more than it would have without."""
        seen = max(0.0, extra) / owed
        before = self._per_token
        self._per_token = seen if before is None else before + NEWEST * (seen - before)

    def dump(self) -> float | None:
        return self._per_token

    def load(self, state: Any) -> None:
        """Raises TypeError or ValueError where the state does not fit."""
        self._per_token = None if state is None else number(state, 0.0)
