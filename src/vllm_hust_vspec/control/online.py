"""The controller that learns while it serves: no profile, no sweep over arms.

It starts at the smallest gamma and climbs while the next one promises more tokens per second. What it sees at one gamma
tells of all: acceptance by position (acceptance.py) and step time by width and passes (step_time.py). It changes gamma
where the gain outweighs what is uncertain about it, and pays for a probe only where a hopeful outcome would repay it,
out of a small credit that grows with every step.
"""

import copy
import logging
import math
from collections.abc import Mapping
from typing import Any

from vllm_hust_vspec.control.acceptance import Acceptance
from vllm_hust_vspec.control.bounds import Bounds
from vllm_hust_vspec.control.contract import Decision, Reason, StepContext, StepOutcome
from vllm_hust_vspec.control.guard import Sifted, sift, whole
from vllm_hust_vspec.control.replay import PAYBACK, ReplayPrice
from vllm_hust_vspec.control.state import count, envelope, number, opened
from vllm_hust_vspec.control.step_time import Step, StepTime
from vllm_hust_vspec.control.tuning import Tuning

logger = logging.getLogger(__name__)

# Changing gamma: the share of goodput that a change must gain where every step offers drafts, and the standard errors
# of acceptance by which it must still win.
GAIN = 0.004
# Speculation that promises less than this over none is not worth its risk: near a tie, what is not modelled (the
# drafter's own time, a kernel's next bucket) decides, and it never favours the wider step.
SOLO = 0.04
CAUTION = 0.25
# Probing: acceptance that a probe may hope for, the gain that the hope must promise, drafts per probe, steps per probe
# of the step time, and the trust (in drafts) left to what was known of a position before it is probed again.
HOPE = 0.92
WORTH = 1.02
PROBE_DRAFTS = 6
TIME_STEPS = 2
PROBE_TRUST = 4.0
# Steps between probes of acceptance, before their price; between looks for uncertain step times.
DRAFT_GAP = 12.0
BACKOFF, BACKOFF_MOST = 1.5, 2.5
TIME_GAP, TIME_GAP_MOST = 3, 24
# The smallest gamma is the safe one: after so many steps without it, its time is doubted by this share.
LEAST_AGE = 96
LEAST_DOUBT = 0.2
# A smaller gamma seen in fewer steps may owe its time to an outlier: it is doubted by this share.
FEW, FEW_DOUBT = 3, 0.15
# Credit for probes, in steps lost: at the start, and the most that can be saved up.
CREDIT_START = 2.0
CREDIT_MOST = 4.0
# Trust (in drafts) left to acceptance when the load jumps by more than an octave.
JUMP_TRUST = 64.0
MOST_SAMPLES = 1_000_000

WHOLE = (
    "gamma", "asked", "octave", "quiet", "since_change", "time_gap", "since_look", "least_age", "probe_gamma",
    "probe_left",
)  # fmt: skip
REAL = ("credit", "backoff")


class OnlineController:
    """Chooses the gamma of highest goodput: expected tokens per request over predicted step time."""

    def __init__(self, bounds: Bounds, tuning: Tuning, seed: int) -> None:
        self._bounds = bounds
        self._tuning = tuning
        self._seed = seed
        self._acceptance = Acceptance(bounds.max_gamma, tuning.acceptance_weight, tuning.memory)
        self._time = StepTime(
            settled=tuning.memory, calibrate=tuning.calibrate, calibration_weight=tuning.calibration_weight
        )
        self._replay = ReplayPrice()
        self._debt = 0.0
        self._gamma = bounds.min_gamma
        self._asked = 0
        self._octave = -1
        self._reach: dict[int, int] = {}
        self._samples: dict[int, list[int]] = {}
        self._passes = [float(gamma) for gamma in range(bounds.max_gamma + 1)]
        self._credit = CREDIT_START
        self._quiet = self._seed % 7
        self._since_change = tuning.interval
        self._backoff = 1.0
        self._time_gap = TIME_GAP
        self._since_look = 0
        self._least_age = 0
        self._probe_gamma = bounds.min_gamma
        self._probe_left = 0
        self._scored: tuple[tuple[int, int, int, int], list[float]] | None = None
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
        self._enter(batch)
        if not self._time.known:
            self._gamma = min(self._gamma, highest)
            return Decision(self._gamma, "hold")
        seconds = self._seconds(batch, context)
        scores = [tokens / time for tokens, time in zip(self._acceptance.tokens, seconds, strict=True)]
        # Steps that resuming costs first; only who rests has to resume.
        self._debt = self._replay.seconds(context, self._time.fit) / seconds[0] if self._gamma == 0 else 0.0
        self._credit = min(self._credit + self._tuning.exploration, CREDIT_MOST + self._debt)
        self._since_change += 1
        self._least_age += 1
        gamma, reason = self._choose(batch, context, highest, [scores[0] * (1.0 + SOLO), *scores[1:]], seconds)
        if gamma == lowest:
            self._least_age = 0
        return Decision(gamma, reason, batch * scores[gamma])

    def _enter(self, batch: int) -> None:
        octave = round(math.log2(batch))
        if octave == self._octave:
            return
        if self._octave >= 0 and abs(octave - self._octave) > 1:
            self._acceptance.doubt(JUMP_TRUST)
            self._backoff = 1.0
        self._time_gap = TIME_GAP
        self._octave = octave

    def _steps(self, batch: int, context: int) -> list[Step]:
        """A step of this batch in the long run of each gamma."""
        width, passes, offered = self._acceptance.width, self._passes, self._acceptance.offer
        some = 1.0 - (1.0 - offered[0]) ** batch if offered else 0.0
        return [
            Step(batch, batch * (1.0 + width[gamma]), passes[gamma], some if gamma else 0.0, 0.0, context)
            for gamma in range(self._bounds.max_gamma + 1)
        ]

    def _seconds(self, batch: int, context: int) -> list[float]:
        key = (batch, context // (64 * batch), self._time.version, self._counters["steps"])
        if self._scored is None or self._scored[0] != key:
            self._scored = key, self._time.predict(self._steps(batch, context))
        return self._scored[1]

    def _choose(
        self, batch: int, context: int, highest: int, scores: list[float], seconds: list[float]
    ) -> tuple[int, Reason]:
        lowest, now = self._bounds.min_gamma, self._gamma
        if now > highest:
            self._move(highest)
            return highest, "switch"
        if self._probe_left > 0 and self._probe_gamma <= highest:
            return self._probe()
        self._probe_left = 0
        if self._since_change < self._tuning.interval:
            return now, "hold"
        reach = max(self._reach.get(self._octave + near, lowest) for near in (-1, 0, 1))
        step = self._tuning.step
        top = min(highest, max(reach, now) + 1 if self._trusted(now) else max(reach, now), now + (step or highest))
        low = lowest if step is None else max(lowest, now - step)
        best = max(range(low, top + 1), key=scores.__getitem__)
        if self._debt > PAYBACK * (scores[best] / scores[now] - 1.0):
            best = now
        if best > reach and scores[best] > scores[now] * (1.0 + (self._tuning.hysteresis or 0.0)):
            if self._tuning.warmup_return == "incumbent":
                return self._start_probe(best, max(self._tuning.warmup, TIME_STEPS))
            self._move(best)
            return best, "climb"
        if best != now and self._gains(now, best, scores, seconds):
            self._move(best)
            return best, "switch"
        return self._consider_probe(batch, context, low, top, scores, seconds)

    def _trusted(self, gamma: int) -> bool:
        return self._tuning.warmup == 0 or self._seen(gamma) >= self._tuning.warmup

    def _seen(self, gamma: int) -> int:
        """Steps that drafted and verified with this gamma at about this load."""
        samples = (self._samples.get(self._octave + near) for near in (-1, 0, 1))
        return sum(counts[gamma] for counts in samples if counts)

    def _gains(self, now: int, best: int, scores: list[float], seconds: list[float]) -> bool:
        if self._tuning.hysteresis is not None:
            return scores[best] > scores[now] * (1.0 + self._tuning.hysteresis)
        if scores[best] <= scores[now] * (1.0 + GAIN * self._stake(max(now, best))):
            return False
        tokens = self._acceptance.tokens_at(-CAUTION if best > now else CAUTION)
        favour = 1.0 + SOLO if best == 0 else 1.0
        return favour * tokens[best] / seconds[best] > tokens[now] / seconds[now]

    def _stake(self, gamma: int) -> float:
        """Share of steps in which the choice matters at all: where nothing is offered, every gamma is the same."""
        return max(0.02, self._acceptance.width[gamma] / gamma) if gamma else 1.0

    def _consider_probe(
        self, batch: int, context: int, low: int, top: int, scores: list[float], seconds: list[float]
    ) -> tuple[int, Reason]:
        now = self._gamma
        self._quiet += 1
        if self._tuning.exploration <= 0.0:
            return now, "hold"
        self._since_look += 1
        if self._since_look >= self._time_gap and low < top:
            self._since_look = 0
            self._time_gap = min(2 * self._time_gap, TIME_GAP_MOST)
            gamma = self._uncertain(now, low, top, scores, seconds, self._time.sigmas(self._steps(batch, context)))
            if gamma is not None and self._pay(TIME_STEPS, scores, gamma):
                return self._start_probe(gamma, TIME_STEPS)
        if now >= top or self._quiet < DRAFT_GAP * self._backoff:
            return now, "hold"
        hope = self._acceptance.hopeful(HOPE, now)
        length = math.ceil(PROBE_DRAFTS / batch)
        for gamma in range(now + 1, top + 1):
            if hope[gamma] / seconds[gamma] > WORTH * scores[now]:
                price = self._debt + length * max(0.0, 1.0 - scores[gamma] / scores[now])
                patience = max(DRAFT_GAP * self._backoff, price / self._tuning.exploration)
                if self._quiet < patience or not self._pay(length, scores, gamma):
                    return now, "hold"
                self._acceptance.doubt(PROBE_TRUST, now)
                self._backoff = min(self._backoff * BACKOFF, BACKOFF_MOST)
                return self._start_probe(gamma, length)
        return now, "hold"

    def _uncertain(
        self, now: int, low: int, top: int, scores: list[float], seconds: list[float], sigmas: list[float]
    ) -> int | None:
        """The gamma whose step time, if it is as short as it may be, makes it best; None if none is worth a look."""
        tokens = self._acceptance.tokens
        best, found = WORTH * scores[now], None
        for gamma in range(low, top + 1):
            if gamma != now:
                doubt = sigmas[gamma]
                if gamma == self._bounds.min_gamma:
                    doubt = max(2.0 * doubt, LEAST_DOUBT * seconds[gamma] * (self._least_age > LEAST_AGE))
                if gamma < now and self._seen(gamma) < FEW:
                    doubt = max(doubt, FEW_DOUBT * seconds[gamma])
                hopeful = tokens[gamma] / max(seconds[gamma] - doubt, 0.3 * seconds[gamma])
                if hopeful > best:
                    best, found = hopeful, gamma
        return found

    def _pay(self, steps: int, scores: list[float], gamma: int) -> bool:
        """Take the price of a probe of so many steps from the credit, if there is enough."""
        price = self._debt + max(steps, self._tuning.interval) * max(0.0, 1.0 - scores[gamma] / scores[self._gamma])
        if price > self._credit:
            return False
        self._credit -= price
        return True

    def _start_probe(self, gamma: int, steps: int) -> tuple[int, Reason]:
        self._probe_gamma, self._probe_left = gamma, max(steps, self._tuning.interval)
        return self._probe()

    def _probe(self) -> tuple[int, Reason]:
        self._quiet = 0
        self._probe_left -= 1
        self._since_change = 0 if self._probe_left or self._tuning.interval == 1 else -1
        self._counters["probes"] += 1
        self._mark(self._probe_gamma)
        return self._probe_gamma, "probe"

    def _move(self, gamma: int) -> None:
        if gamma > self._gamma:
            self._backoff = 1.0
        self._gamma = gamma
        self._since_change = 0
        self._quiet = 0
        self._counters["switches"] += 1
        self._mark(gamma)

    def _mark(self, gamma: int) -> None:
        self._reach[self._octave] = max(gamma, self._reach.get(self._octave, self._bounds.min_gamma))

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
        self._asked = seen.gamma
        if seen.pairs:
            self._acceptance.observe(asked, seen.pairs)
        if self._replays(outcome, seen) or seen.step is None:
            return
        self._counters["timed"] += 1
        self._passes[seen.gamma] += 0.2 * (seen.step.passes - self._passes[seen.gamma])
        self._time.observe(seen.gamma, seen.step, seen.seconds)
        if asked == seen.gamma:
            octave = round(math.log2(seen.step.batch))
            samples = self._samples.setdefault(octave, [0] * (self._bounds.max_gamma + 1))
            samples[asked] = min(samples[asked] + 1, MOST_SAMPLES)

    def _replays(self, outcome: StepOutcome, seen: Sifted) -> bool:
        """Follow the drafter's rests. Whether a replay was part of this step, whose time then is not its gamma's."""
        price, passes = self._replay, outcome.draft_passes
        if seen.gamma == 0:
            tokens = (outcome.num_prefill_tokens, outcome.verify_tokens)
            if passes == 0 and all(map(whole, tokens)):
                price.rest(sum(tokens))
            return False
        if not price.due or passes is None or seen.gamma is None:
            return False
        replayed = passes > seen.gamma
        if replayed and seen.step is not None:
            extra = seen.seconds - self._time.fit.seconds(seen.step._replace(passes=float(seen.gamma)))
            price.observe(int(seen.step.context), extra, self._time.fit)
        price.resume()
        return replayed

    # Remembering

    def snapshot(self) -> dict[str, Any]:
        summary = {
            "gamma": self._gamma,
            **self._acceptance.summary(),
            "step_time": self._time.summary(),
            "probe_credit_steps": round(self._credit, 3),
            "counters": dict(self._counters),
        }
        state = {
            "acceptance": self._acceptance.dump(),
            "time": self._time.dump(),
            "replay": self._replay.dump(),
            "reach": sorted(self._reach.items()),
            "samples": sorted(self._samples.items()),
            "passes": list(self._passes),
            "counters": dict(self._counters),
            **{name: getattr(self, f"_{name}") for name in (*WHOLE, *REAL)},
        }
        return envelope("online", self._bounds, summary, copy.deepcopy(state))

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            new = self._loaded(state)
            new._acceptance.resume()
            new._time.resume()
            self.__dict__ = new.__dict__
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning("vspec: controller state ignored, going on without it: %s", error)

    def _loaded(self, snapshot: Mapping[str, Any]) -> "OnlineController":
        state = opened("online", self._bounds, snapshot)
        new, lowest, highest = OnlineController(self._bounds, self._tuning, self._seed), *self._bounds.range
        new._acceptance.load(state["acceptance"])
        new._time.load(state["time"])
        new._replay.load(state["replay"])
        new._reach = {count(key): count(gamma, highest) for key, gamma in state["reach"]}
        new._samples = {count(key): [count(n) for n in counts] for key, counts in state["samples"]}
        new._passes = [number(value, 0.0) for value in state["passes"]]
        if {len(new._passes), *map(len, new._samples.values())} != {highest + 1}:
            raise ValueError("its counts do not match the largest gamma")
        new._counters = {name: count(state["counters"][name]) for name in new._counters}
        for name in WHOLE:
            setattr(new, f"_{name}", int(number(state[name], -1)))
        for name in REAL:
            setattr(new, f"_{name}", number(state[name], 0.0))
        for name in ("gamma", "asked", "probe_gamma"):
            setattr(new, f"_{name}", count(getattr(new, f"_{name}"), highest))
        new._gamma = max(new._gamma, lowest)
        new._probe_gamma = max(new._probe_gamma, lowest)
        return new
