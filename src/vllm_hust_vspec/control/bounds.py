"""The range that gamma may take, and which part of it a step can hold."""

import logging
from dataclasses import dataclass, field

from vllm_hust_vspec.control.contract import StepContext

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Bounds:
    """min_gamma..max_gamma, cut to what fits a step's token budget."""

    min_gamma: int
    max_gamma: int
    warned: bool = field(default=False, init=False)

    @property
    def range(self) -> tuple[int, int]:
        return self.min_gamma, self.max_gamma

    def top(self, step: StepContext) -> int:
        """Largest feasible gamma: num_decodes * (gamma + 1) <= token_budget; min_gamma - 1 when none is."""
        if step.num_decodes <= 0:
            return self.max_gamma
        top = min(self.max_gamma, step.token_budget // step.num_decodes - 1)
        if top >= self.min_gamma:
            return top
        if not self.warned:
            self.warned = True
            logger.warning(
                "vspec: no gamma from %d to %d fits %d requests into max_num_batched_tokens=%d; using %d (said once)",
                self.min_gamma, self.max_gamma, step.num_decodes, step.token_budget, self.min_gamma,
            )  # fmt: skip
        return self.min_gamma - 1
