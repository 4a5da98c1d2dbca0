"""The controller that never changes its mind."""

import logging
from collections.abc import Mapping
from typing import Any

from vllm_hust_vspec.control.bounds import Bounds
from vllm_hust_vspec.control.contract import Decision, StepContext, StepOutcome
from vllm_hust_vspec.control.state import envelope, opened

logger = logging.getLogger(__name__)


class FixedController:
    """Gamma is max_gamma, or the largest that the step can hold."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._steps = 0
        self._faults = 0

    def decide(self, step: StepContext) -> Decision:
        try:
            top = self._bounds.top(step)
        except (TypeError, ValueError, OverflowError):
            self._faults += 1
            return Decision(self._bounds.min_gamma, "fault")
        if top < self._bounds.min_gamma:
            return Decision(self._bounds.min_gamma, "infeasible")
        return Decision(int(top), "fixed")

    def observe(self, outcome: StepOutcome) -> None:
        self._steps += 1

    def snapshot(self) -> dict[str, Any]:
        summary = {"gamma": self._bounds.max_gamma, "counters": {"steps": self._steps, "faults": self._faults}}
        return envelope("fixed", self._bounds, summary, {"steps": self._steps, "faults": self._faults})

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            inner = opened("fixed", self._bounds, state)
            steps, faults = int(inner["steps"]), int(inner["faults"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning("vspec: controller state ignored, starting fresh: %s", error)
            return
        self._steps, self._faults = steps, faults
