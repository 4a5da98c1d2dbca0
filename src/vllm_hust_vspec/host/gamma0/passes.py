"""How often the drafter runs in each step: the scheduler's side of its rest."""

from __future__ import annotations


class DrafterPasses:
    """runs_model: the drafter is a model, which runs at least once a step to keep its KV whole, unless it rests;
    always: it runs as many passes as that, whatever gamma; rests: at gamma 0 it runs none, and makes up for it later.
    """

    def __init__(self, runs_model: bool, always: int | None, rests: bool) -> None:
        self._runs_model = runs_model
        self._always = always
        self._rests = rests and runs_model
        self._resting = False

    def of(self, gamma: int, samples: bool) -> int:
        """Passes of a step that asks for gamma drafts; samples: a request in it samples.

        Without one the drafter goes on as before: it neither begins to rest nor resumes. The step that resumes has one
        pass more, its replay.
        """
        if not self._runs_model:
            return 0
        rested = self._resting
        if self._rests and samples:
            self._resting = gamma == 0
        if self._resting:
            return 0
        return (self._always or max(gamma, 1)) + rested
