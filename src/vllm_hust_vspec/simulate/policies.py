"""The baselines: what others do, in the same engine and with at least the knowledge that they have there.

All of them may choose gamma 0, which most of the originals cannot.
"""

import math
from collections import defaultdict, deque

from vllm_hust_vspec.control import Decision, StepContext, StepOutcome
from vllm_hust_vspec.simulate.hosts import Host
from vllm_hust_vspec.simulate.steady import best_gamma


class Constant:
    """One gamma for ever."""

    blind = True

    def __init__(self, gamma: int) -> None:
        self._decision = Decision(gamma, "fixed")

    def decide(self, step: StepContext) -> Decision:
        return self._decision

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""


class BatchTable:
    """A table from batch to gamma, tuned with exact costs at one acceptance; like vLLM's
    num_speculative_tokens_per_batch_size, which is made by hand."""

    blind = True

    def __init__(self, host: Host, max_gamma: int, tuned_at: str = "middling") -> None:
        self._table = {
            octave: Decision(best_gamma(host, 1 << octave, host.nature(tuned_at), max_gamma), "fixed")
            for octave in range(11)
        }

    def decide(self, step: StepContext) -> Decision:
        return self._table[min(_octave(step.num_decodes), 10)]

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""


class Bandit:
    """UCB over gammas: each batch octave has arms of its own, pulled `hold` steps at a time, rewarded with tokens/s
    over a sliding window. The predecessor's online policy is of this kind."""

    def __init__(self, max_gamma: int, hold: int = 4, window: int = 16, boldness: float = 0.08) -> None:
        self._arms = range(max_gamma + 1)
        self._hold, self._window, self._boldness = hold, window, boldness
        self._rewards: dict[int, list[deque[float]]] = {}
        self._pulls: dict[int, int] = defaultdict(int)
        self._gamma, self._left, self._octave = 0, 0, -1
        self._drafted: deque[int] = deque(maxlen=2)

    def decide(self, step: StepContext) -> Decision:
        octave = _octave(step.num_decodes)
        if self._left <= 0 or octave != self._octave:
            self._octave, self._left = octave, self._hold
            self._gamma = self._pull(octave)
        self._left -= 1
        return Decision(self._gamma, "fixed")

    def observe(self, outcome: StepOutcome) -> None:
        self._drafted.append(outcome.gamma)
        settled = len(self._drafted) == 2 and self._drafted[0] == self._drafted[1]
        if outcome.interval_s and outcome.num_decodes and settled:
            arms = self._arms_of(_octave(outcome.num_decodes))
            arms[outcome.gamma].append(outcome.committed_tokens / outcome.interval_s)

    def _arms_of(self, octave: int) -> list[deque[float]]:
        return self._rewards.setdefault(octave, [deque(maxlen=self._window) for _ in self._arms])

    def _pull(self, octave: int) -> int:
        arms = self._arms_of(octave)
        self._pulls[octave] += 1
        for gamma in self._arms:
            if not arms[gamma]:
                return gamma
        means = [sum(arm) / len(arm) for arm in arms]
        top, pulls = max(means), math.log(self._pulls[octave] + 1)
        return max(
            self._arms,
            key=lambda gamma: means[gamma] / top + self._boldness * math.sqrt(pulls / len(arms[gamma])),
        )


class ThroughputRule:
    """Expected tokens over cost, as SGLang's throughput-aware policy (sgl-project/sglang#28045): acceptance by position
    over the last 20 verifications, costs measured beforehand (here: exact), looked at every few batches."""

    def __init__(self, host: Host, max_gamma: int, window: int = 20, every: int = 5, first: float = 0.8) -> None:
        self._cost, self._gammas, self._every, self._first = host.cost, range(max_gamma + 1), every, first
        self._seen: list[deque[tuple[int, int]]] = [deque(maxlen=window) for _ in range(max_gamma)]
        self._gamma, self._age = max_gamma, every

    def decide(self, step: StepContext) -> Decision:
        self._age += 1
        if self._age >= self._every and step.num_decodes:
            self._age = 0
            self._gamma = self._best(step.num_decodes, step.context_tokens)
        return Decision(self._gamma, "fixed")

    def observe(self, outcome: StepOutcome) -> None:
        for position, seen in enumerate(self._seen):
            tried = sum(
                proposed > position and accepted >= position
                for proposed, accepted in zip(outcome.proposed, outcome.accepted, strict=True)
            )
            if tried:
                seen.append((tried, sum(accepted > position for accepted in outcome.accepted)))

    def _best(self, batch: int, context: int) -> int:
        tokens, alive, best, chosen = 1.0, 1.0, 0.0, 0
        for gamma in self._gammas:
            if gamma:
                seen = self._seen[gamma - 1]
                alive *= sum(hit for _, hit in seen) / sum(tried for tried, _ in seen) if seen else self._first
                tokens += alive
            score = tokens / self._cost(batch, batch * (gamma + 1), gamma, 0, context)
            if score > best:
                best, chosen = score, gamma
        return chosen


def _octave(batch: int) -> int:
    return round(math.log2(batch)) if batch > 0 else 0
