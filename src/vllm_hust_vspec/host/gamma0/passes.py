"""How often the drafter runs in each step, and what it will have to make up for: the scheduler's side of its rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class DrafterPasses:
    """runs_model: the drafter is a model, which runs at least once a step to keep its KV whole, unless it rests;
    always: it runs as many passes as that, whatever gamma; rests: at gamma 0 it runs none, and makes up for it later.
    """

    def __init__(self, runs_model: bool, always: int | None, rests: bool) -> None:
        self._runs_model = runs_model
        self._always = always
        self._rests = rests and runs_model
        self._resting = False
        self._owed: dict[str, int] = {}

    def of(self, output: Any, gamma: int, samples: bool) -> int:
        """Passes of a step that asks for gamma drafts; samples: a request in it samples.

        Without one the drafter goes on as before: it neither begins to rest nor resumes.
        """
        if not self._runs_model:
            return 0
        if not self._rests:
            return self._always or max(gamma, 1)
        if samples:
            self._resting = gamma == 0
        owed = self._owed
        if self._resting:
            for request_id, tokens in output.num_scheduled_tokens.items():
                owed[request_id] = owed.get(request_id, 0) + tokens
            return 0
        if owed:
            for request_id in output.num_scheduled_tokens:
                owed.pop(request_id, None)
        return self._always or max(gamma, 1)

    def owed(self, scheduled: Mapping[str, int]) -> int:
        """Tokens of the scheduled requests whose KV the drafter lacks: what a replay now would compute.

        Rejected drafts count too, and what a prefix hit owes does not: an estimate, for the price of resuming.
        """
        owed = self._owed
        return sum(owed[request_id] for request_id in scheduled if request_id in owed) if owed else 0

    def forget(self, finished: Iterable[str]) -> None:
        """Requests that are gone owe nothing."""
        for request_id in finished if self._owed else ():
            self._owed.pop(request_id, None)
