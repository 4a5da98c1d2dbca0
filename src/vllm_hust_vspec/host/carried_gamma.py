"""Gamma on its way from scheduler to workers, on a vLLM that does not carry it (0.23): the scheduler's side.

The number of tokens to draft travels as an attribute of the step's SchedulerOutput, under the name of the field that
later versions of vLLM have, so that whoever reads it there reads it here. What a platform's workers do with it is
their own chapter (`ascend_gamma`).
"""

from __future__ import annotations

from typing import Any

from vllm_hust_vspec.host.requirements import Attributes, Field, Method, Requirement

OUTPUT = "vllm.v1.core.sched.output:SchedulerOutput"
GAMMA = "num_spec_tokens_to_schedule"
_ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
PLACEHOLDERS = Attributes(_ASYNC, ("_spec_token_placeholders",))

# What the scheduler of a host must have so that gamma can be brought to it.
REQUIRES: tuple[Requirement, ...] = (
    Method("vllm.v1.core.sched.scheduler:Scheduler.update_draft_token_ids", ("draft_token_ids",)),
    PLACEHOLDERS,
)


def host_carries_gamma() -> bool:
    """Whether this vLLM's own SchedulerOutput says how many tokens to draft (0.24 and later)."""
    return Field(OUTPUT, GAMMA).missing() is None


class CarriedGamma:
    """Mixed in between AdaptiveScheduler and the host's class where the host does not carry gamma."""

    def _update_after_schedule(self, scheduler_output: Any) -> Any:
        # The asynchronous scheduler gives every request these placeholders for its next step: as many as are drafted.
        gamma = getattr(scheduler_output, GAMMA, None)
        if gamma is not None and hasattr(self, "_spec_token_placeholders"):
            self._spec_token_placeholders = [-1] * gamma
        return super()._update_after_schedule(scheduler_output)  # type: ignore[misc]
