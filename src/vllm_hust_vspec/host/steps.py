"""A step between its schedule and its output, and what its output says of its drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_hust_vspec.control import StepContext, StepOutcome


@dataclass(slots=True)
class Step:
    """A scheduled step whose output is still to come."""

    output: Any
    gamma: int
    context: StepContext
    expected: list[str]
    after_idle: bool
    pinned: bool
    passes: int = 0
    reason: str = ""
    goodput: float | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """A step's output, read before the scheduler consumes it. verified: request id -> (proposed, accepted)."""

    step: Step
    verified: dict[str, tuple[int, int]]
    interval_s: float | None


def outcome_of(
    step: Step,
    verified: Mapping[str, tuple[int, int]],
    committed: int,
    interval_s: float | None,
) -> StepOutcome:
    """verified: request id -> (proposed, accepted)."""
    context = step.context
    return StepOutcome(
        gamma=step.gamma,
        num_decodes=context.num_decodes,
        num_prefill_tokens=context.num_prefill_tokens,
        context_tokens=context.context_tokens,
        proposed=tuple(proposed for proposed, _ in verified.values()),
        accepted=tuple(accepted for _, accepted in verified.values()),
        committed_tokens=committed,
        interval_s=interval_s,
        verify_tokens=context.verify_tokens,
        draft_passes=step.passes,
        request_ids=tuple(verified),
    )


def verified_drafts(expected: list[str], scheduler: Any, output: Any, runner_output: Any) -> dict[str, tuple[int, int]]:
    """(proposed, accepted) of each request whose drafts a step verified.

    Skipped: requests that are gone, that the step did not sample, and stale outputs of preempted ones. Drafts that a
    grammar forbade were never offered to the target, so they do not count.
    """
    sampled = runner_output.sampled_token_ids
    if not sampled:
        return {}
    index = runner_output.req_id_to_index
    drafts = output.scheduled_spec_decode_tokens
    invalid = output.num_invalid_spec_tokens or {}
    verified = {}
    for request_id in expected:
        request = scheduler.requests.get(request_id)
        row = index.get(request_id)
        if request is None or row is None or request.is_finished() or request.num_stale_output_tokens > 0:
            continue
        tokens = len(sampled[row])
        if tokens:
            proposed = len(drafts.get(request_id, ())) - invalid.get(request_id, 0)
            verified[request_id] = (proposed, min(tokens - 1, proposed))
    return verified
