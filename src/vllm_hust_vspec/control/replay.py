"""What it costs to resume: a drafter that rested at gamma 0 first computes what it skipped, in one replay.

A step of gamma 0 without a pass of the drafter is a rest; a step after it with more passes than gamma has a replay.
"""

from typing import Any

from vllm_hust_vspec.control.fit import DRAFT, PROMPT, Fit
from vllm_hust_vspec.control.state import count, number

# Steps over which a move away from gamma 0 must earn what its replay costs.
PAYBACK = 100.0
# Tokens that the first guess is worth, and what is left of older replays when another one is seen.
GUESS_TOKENS = 64.0
KEEP = 0.7


class ReplayPrice:
    """Seconds of the replay that is due: a pass, and so much a token.

    Until replays were seen, a token costs the drafter what a prompt token costs the target, by the ratio of their
    passes. A host that was never seen to replay is not expected to.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._extra = 0.0
        self._skipped = 0

    @property
    def due(self) -> bool:
        """Whether the drafter skipped a step since it last ran."""
        return self._skipped > 0

    def rest(self, tokens: int) -> None:
        """The drafter skipped a step of so many tokens."""
        self._skipped = min(self._skipped + tokens, (1 << 31) - 1)

    def resume(self) -> None:
        """The drafter ran again, and owes nothing."""
        self._skipped = 0

    def seconds(self, context: int, fit: Fit) -> float:
        """Of a replay now; context: tokens in the KV of those that would draft, who owe no more than that."""
        owed = min(self._skipped, context)
        if not owed or not self._tokens:
            return 0.0
        guess = fit.linear[PROMPT] * min(1.0, fit.linear[DRAFT] / max(fit.target[0], 1e-9))
        per_token = (GUESS_TOKENS * guess + self._extra) / (GUESS_TOKENS + self._tokens)
        return fit.linear[DRAFT] + owed * per_token

    def observe(self, context: int, extra: float, fit: Fit) -> None:
        """A step with a replay took `extra` seconds more than it would have without."""
        owed = min(self._skipped, context)
        self._tokens = KEEP * self._tokens + owed
        self._extra = KEEP * self._extra + max(0.0, extra - fit.linear[DRAFT])

    def dump(self) -> list[float]:
        return [self._tokens, self._extra, self._skipped]

    def load(self, state: Any) -> None:
        """Raises TypeError or ValueError where the state does not fit."""
        tokens, extra, skipped = state
        self._tokens, self._extra, self._skipped = number(tokens, 0.0), number(extra, 0.0), count(skipped)
