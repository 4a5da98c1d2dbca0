"""The controller that starts from measured latencies: policy `profile`.

goodput(gamma) = batch * expected tokens / step time, with the step time out of the profile file, corrected gamma by
gamma while it serves, and acceptance at the profile's default until enough drafts were verified. The file's
`batch_gamma_policy` anchors gamma by batch until then; afterwards what was measured may override it.
"""

import bisect
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from vllm_hust_vspec.control.bounds import Bounds
from vllm_hust_vspec.control.contract import Decision, Reason, StepContext, StepOutcome
from vllm_hust_vspec.control.guard import sift, whole
from vllm_hust_vspec.control.profile_acceptance import ProfileAcceptance
from vllm_hust_vspec.control.profile_time import OWN, ProfileTime
from vllm_hust_vspec.control.state import count, envelope, opened
from vllm_hust_vspec.control.tuning import ProfileTuning
from vllm_hust_vspec.settings.profile_file import ProfileFile

logger = logging.getLogger(__name__)

MOST_WAITED = 1 << 30
# A neighbour whose time was never measured is looked at once, unless it promises this much less than gamma in force.
WORTH = 0.75


class ProfileController:
    """Chooses the gamma of highest predicted goodput, one measured step and `interval` decisions at a time."""

    def __init__(self, bounds: Bounds, profile: ProfileFile, tuning: ProfileTuning) -> None:
        self._bounds = bounds
        self._profile = profile
        self._tuning = tuning
        self._acceptance = ProfileAcceptance(
            bounds.max_gamma, profile.default_acceptance_rate, tuning.acceptance_weight, tuning.min_observations
        )
        self._time = ProfileTime(
            profile, bounds.max_gamma, calibrate=tuning.calibrate, weight=tuning.calibration_weight
        )
        start = bounds.max_gamma if profile.initial_gamma is None else profile.initial_gamma
        self._gamma = min(max(start, bounds.min_gamma), bounds.max_gamma)
        self._asked = 0
        self._waited = 0
        self._probe_gamma, self._probe_left = 0, 0
        self._batches = sorted(profile.batch_gamma_policy)
        self._counters = dict.fromkeys(("decisions", "steps", "timed", "ignored", "faults", "switches", "probes"), 0)

    # Deciding

    def decide(self, step: StepContext) -> Decision:
        try:
            return self._decide(step)
        except Exception:
            self._counters["faults"] += 1
            return Decision(self._bounds.min_gamma, "fault")

    def _decide(self, step: StepContext) -> Decision:
        self._counters["decisions"] += 1
        lowest, batch = self._bounds.min_gamma, step.num_decodes
        if not whole(batch) or not whole(step.token_budget):
            self._counters["ignored"] += 1
            return Decision(lowest, "fault")
        highest = self._bounds.top(step)
        if highest < lowest:
            return Decision(lowest, "infeasible")
        if batch == 0:
            return Decision(min(self._gamma, highest), "idle")
        context = step.context_tokens if whole(step.context_tokens) else 0
        self._acceptance.pass_over()
        tokens = self._acceptance.tokens
        scores = [
            batch * tokens[gamma] / self._time.steady(gamma, batch, context)
            for gamma in range(self._bounds.max_gamma + 1)
        ]
        self._waited = min(self._waited + 1, MOST_WAITED)
        reason: Reason = "hold"
        if self._waited >= self._tuning.interval:
            wanted = self._wanted(batch, highest, scores)
            if wanted != self._gamma:
                self._gamma, self._waited, reason = wanted, 0, "switch"
                self._counters["switches"] += 1
            elif self._probe_left == 0:
                self._consider_probe(highest, scores)
        if self._probe_left:
            return self._probe(highest, scores)
        gamma = min(self._gamma, highest)
        return Decision(gamma, reason, scores[gamma])

    def _wanted(self, batch: int, highest: int, scores: list[float]) -> int:
        """Where gamma should go from here, no further than a change may be."""
        lowest, now = self._bounds.min_gamma, self._gamma
        low, high = max(lowest, now - self._tuning.step), min(highest, now + self._tuning.step)
        if high < low:  # the step holds less than the gamma in force by more than one change: decide() cuts it
            return now
        anchor = self._anchor(batch)
        if anchor is not None and not self._acceptance.trusted:
            return min(max(anchor, low), high)
        best = max(range(low, high + 1), key=scores.__getitem__)
        return best if scores[best] > scores[min(now, highest)] * (1.0 + self._tuning.hysteresis) else now

    def _consider_probe(self, highest: int, scores: list[float]) -> None:
        """Look once at a neighbour of unknown time: what is measured at one gamma cannot rank another."""
        now = self._gamma
        if not (self._tuning.calibrate and self._acceptance.trusted and self._time.measured(now)):
            return
        for gamma in (now - 1, now + 1):
            inside = self._bounds.min_gamma <= gamma <= highest
            if inside and not self._time.measured(gamma) and scores[gamma] >= WORTH * scores[now]:
                self._probe_gamma, self._probe_left = gamma, max(OWN + 1, self._tuning.interval)
                self._counters["probes"] += 1
                return

    def _probe(self, highest: int, scores: list[float]) -> Decision:
        self._probe_left -= 1
        self._waited = 0
        gamma = min(self._probe_gamma, highest)
        return Decision(gamma, "probe", scores[gamma])

    def _anchor(self, batch: int) -> int | None:
        """Gamma of the smallest batch in the file's table that is as large as this one; the last beyond them."""
        if not self._batches:
            return None
        at = min(bisect.bisect_left(self._batches, batch), len(self._batches) - 1)
        return self._profile.batch_gamma_policy[self._batches[at]]

    # Observing

    def observe(self, outcome: StepOutcome) -> None:
        try:
            self._observe(outcome)
        except Exception:
            self._counters["faults"] += 1

    def _observe(self, outcome: StepOutcome) -> None:
        self._counters["steps"] += 1
        asked, self._asked = self._asked, 0
        seen = sift(outcome, self._bounds.max_gamma)
        self._counters["ignored"] += seen.ignored
        if seen.gamma is None:
            return
        self._asked = gamma = int(seen.gamma)
        if seen.pairs:
            self._acceptance.observe(seen.pairs)
        # A step whose verification and drafts belong to different gammas says little of either.
        if seen.step is None or asked != gamma:
            return
        self._counters["timed"] += 1
        self._time.observe(
            gamma,
            batch=int(seen.step.batch),
            context=int(seen.step.context),
            verify=int(seen.step.verify),
            passes=int(seen.step.passes),
            prefill=int(seen.step.prefill),
            seconds=seen.seconds,
        )

    # Remembering

    def snapshot(self) -> dict[str, Any]:
        summary = {
            "gamma": self._gamma,
            "acceptance": [round(rate, 4) for rate in self._acceptance.rates],
            "time_factors": [round(factor, 4) for factor in self._time.corrected],
            "counters": dict(self._counters),
        }
        state = {
            "profile": fingerprint(self._profile),
            "gamma": self._gamma,
            "asked": self._asked,
            "waited": self._waited,
            "acceptance": self._acceptance.dump(),
            "time": self._time.dump(),
            "counters": dict(self._counters),
        }
        return envelope("profile", self._bounds, summary, state)

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self.__dict__ = self._loaded(state).__dict__
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning("vspec: controller state ignored, going on without it: %s", error)

    def _loaded(self, snapshot: Mapping[str, Any]) -> "ProfileController":
        state = opened("profile", self._bounds, snapshot)
        if state["profile"] != fingerprint(self._profile):
            raise ValueError("it belongs to another profile file")
        new = ProfileController(self._bounds, self._profile, self._tuning)
        new._acceptance.load(state["acceptance"])
        new._time.load(state["time"])
        new._gamma = max(count(state["gamma"], self._bounds.max_gamma), self._bounds.min_gamma)
        new._asked = count(state["asked"], self._bounds.max_gamma)
        new._waited = count(state["waited"], MOST_WAITED)
        new._counters = {name: count(state["counters"][name]) for name in new._counters}
        return new


def fingerprint(profile: ProfileFile) -> str:
    """A short digest of everything in a profile that decisions rest on."""
    content = profile.model_dump_json(exclude={"measured_on"})
    return hashlib.sha256(content.encode()).hexdigest()[:16]
