"""What of an outcome can be true; the rest is counted and left out."""

import math
from collections import Counter
from dataclasses import dataclass

from vllm_hust_vspec.control.contract import StepOutcome
from vllm_hust_vspec.control.step_time import Step

LONGEST_STEP_S = 3600.0
MOST_PASSES = 64


@dataclass(slots=True)
class Sifted:
    """gamma: drafted in the step, None if it cannot be. pairs: (proposed, accepted) -> requests. step and seconds: for
    the step time, None where nothing can be learnt of it. ignored: values left out."""

    gamma: int | None
    pairs: Counter[tuple[int, int]]
    step: Step | None
    seconds: float
    ignored: int


def sift(outcome: StepOutcome, max_gamma: int) -> Sifted:
    """The credible part of an outcome."""
    if not whole(outcome.gamma) or outcome.gamma > max_gamma:
        return Sifted(None, Counter(), None, 0.0, 1)
    pairs, ignored = _verified(outcome, max_gamma)
    timed = Sifted(outcome.gamma, pairs, None, 0.0, ignored)
    if outcome.interval_s is None or outcome.num_decodes == 0:
        return timed
    passes = outcome.gamma if outcome.draft_passes is None else outcome.draft_passes
    sizes = (outcome.num_decodes, outcome.num_prefill_tokens, outcome.context_tokens, outcome.verify_tokens, passes)
    if not _is_time(outcome.interval_s) or not all(whole(size) for size in sizes):
        timed.ignored += 1
        return timed
    drafts = sum(proposed * requests for (proposed, _), requests in pairs.items())
    timed.seconds = float(outcome.interval_s)
    timed.step = Step(
        batch=outcome.num_decodes,
        verify=outcome.verify_tokens or outcome.num_decodes + drafts,
        passes=min(passes, MOST_PASSES),
        any_draft=float(drafts > 0),
        prefill=outcome.num_prefill_tokens,
        context=outcome.context_tokens,
    )
    return timed


def _verified(outcome: StepOutcome, max_gamma: int) -> tuple[Counter[tuple[int, int]], int]:
    if len(outcome.proposed) != len(outcome.accepted):
        return Counter(), 1
    pairs = Counter(zip(outcome.proposed, outcome.accepted, strict=True))
    ignored = 0
    for proposed, accepted in list(pairs):
        if not (whole(proposed) and whole(accepted) and accepted <= proposed <= max_gamma):
            ignored += pairs.pop((proposed, accepted))
    return pairs, ignored


def whole(value: object) -> bool:
    """Whether it is a whole number that a count can be; True is not."""
    return type(value) is int and 0 <= value < 1 << 31


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0.0 < value < LONGEST_STEP_S
