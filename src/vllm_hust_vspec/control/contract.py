"""What a host tells a controller, what it gets back, and the protocol between the two."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

Reason = Literal["fixed", "idle", "hold", "switch", "climb", "probe", "infeasible", "fault"]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class StepContext:
    """A step about to be scheduled.

    num_decodes: requests that sample a token in this step, those for which drafts will be made.
    num_prefill_tokens: prompt tokens scheduled in this step.
    context_tokens: tokens in the KV cache before this step, summed over num_decodes.
    token_budget: max_num_batched_tokens.
    verify_tokens: decode tokens scheduled now, padding included.
    """

    num_decodes: int
    num_prefill_tokens: int
    context_tokens: int
    token_budget: int
    verify_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step that ended: it verified the drafts of an earlier step and made the drafts of a later one.

    gamma: drafts requested per request in this step; a later outcome tells how they fared.
    proposed, accepted: one entry per request that was asked to draft earlier and is verified now, 0 where the drafter
    offered nothing; aligned with request_ids.
    committed_tokens: tokens kept after stop checks, first tokens included.
    interval_s: seconds since the step before it ended, None after idle or when the step was cancelled.
    verify_tokens: decode tokens verified in this step, padding included.
    draft_passes: drafter passes in this step, shadow passes and replays included; None = not counted.
    """

    gamma: int
    num_decodes: int
    num_prefill_tokens: int
    context_tokens: int
    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    committed_tokens: int
    interval_s: float | None
    verify_tokens: int = 0
    draft_passes: int | None = None
    request_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Drafts per request for one step.

    reason: one of REASONS. expected_goodput: tokens/s, None where the controller has no model of it.
    limits: per-request caps within gamma, None = none.
    """

    gamma: int
    reason: Reason
    expected_goodput: float | None = None
    limits: tuple[int, ...] | None = None


class GammaController(Protocol):
    """Chooses gamma. Reads no clock, never raises, keeps bounded memory, is deterministic given seed and inputs."""

    def decide(self, step: StepContext) -> Decision:
        """Choose gamma; called once per non-empty schedule, before drafting."""
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a step; exactly one call per decide, in order, up to two steps late."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Everything that restore needs, and under "summary" what a person wants to read; JSON-able."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; a foreign or damaged one is ignored with a warning."""
        ...
