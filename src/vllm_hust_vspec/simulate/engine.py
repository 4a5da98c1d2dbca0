"""A serving engine in steps: requests join, prefill in chunks within the token budget, decode with drafts, finish.

Every step asks the controller for one gamma, and tells it later how the step went. The clock counts clean times; the
controller is shown noisy ones.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control import Decision, StepContext, StepOutcome
from vllm_hust_vspec.simulate.batch import Batch
from vllm_hust_vspec.simulate.sources import source_of
from vllm_hust_vspec.simulate.texts import Texts
from vllm_hust_vspec.simulate.workload import Workload

Cost = Callable[[int, int, int, int, int], float]
"""(requests, verified tokens, drafter passes, prompt tokens, tokens in KV) -> milliseconds."""
BLOCK = 512


class Policy(Protocol):
    """What the engine needs of a controller."""

    def decide(self, step: StepContext) -> Decision: ...

    def observe(self, outcome: StepOutcome) -> None: ...


@dataclass(frozen=True, slots=True)
class Noise:
    """What the controller is shown of a step's time: log-normal noise, and now and then a step `slow` times as long."""

    sigma: float = 0.04
    outliers: float = 0.005
    slow: float = 6.0


@dataclass(slots=True)
class Run:
    """One job. By step: gamma, phase, requests, tokens kept, drafts verified, clean seconds. latency_s: from arrival to
    the last token, by request that was served whole."""

    gammas: list[int] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    served: dict[int, int] = field(default_factory=dict)

    def add(self, gamma: int, phase: int, batch: int, tokens: int, drafts: int, seconds: float) -> None:
        self.gammas.append(gamma)
        self.phases.append(phase)
        self.batches.append(batch)
        self.tokens.append(tokens)
        self.drafts.append(drafts)
        self.seconds.append(seconds)

    @property
    def steps(self) -> int:
        return len(self.gammas)

    @property
    def rate(self) -> float:
        """Tokens per second while busy."""
        return sum(self.tokens) / sum(self.seconds)

    def by_phase(self, phases: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(tokens, seconds) of each phase."""
        return (
            np.bincount(self.phases, self.tokens, phases).astype(np.float64),
            np.bincount(self.phases, self.seconds, phases).astype(np.float64),
        )


@dataclass(frozen=True, slots=True)
class Engine:
    """A host that serves a workload. lag: decisions that go by before a step's outcome is known (asynchronous
    scheduling: 1), budget: max_num_batched_tokens."""

    cost: Cost
    workload: Workload
    lag: int = 0
    budget: int = 8192
    noise: Noise = field(default_factory=Noise)

    def run(self, policy: Policy, seed: int, texts: Texts | None = None) -> Run:
        """Serve the whole job. texts: the workload's for this seed, where they are at hand already."""
        workload = self.workload
        texts = texts or workload.texts(seed)
        natures = [(texts.accepted(p.nature.rates), texts.offered(p.nature.offers)) for p in workload.phases]
        source = source_of(workload, texts, seed)
        told = not getattr(policy, "blind", False)
        shown = _shown(self.noise, seed)
        batch = Batch(texts, max(workload.max_requests, *(phase.concurrency for phase in workload.phases)))
        late: deque[StepOutcome] = deque()
        run, clock, asked, idle = Run(), 0.0, 0, True
        while not source.done:
            clock, idled = source.wait(clock, batch.running)
            idle = idle or idled
            most = source.most()
            if most is not None and batch.running > most:
                run.served.update(batch.abort(most))
            batch.admit(source.join(clock, batch.running))
            phase = source.phase
            drafts = batch.drafts(asked, *natures[phase])
            verify = len(batch.who) + drafts.count
            finished, prompts, held = batch.prefill(self.budget - verify)
            size, context = len(batch.who) + len(finished), batch.kv + held
            gamma = policy.decide(StepContext(size, prompts, context, self.budget, verify)).gamma
            passes = gamma if size else 0
            seconds = self.cost(size, verify, passes, prompts, context) / 1e3
            clock += seconds
            names = batch.names() if told and drafts.asked else ()
            committed = batch.keep(drafts.accepted) + batch.start(finished)
            if told:
                interval = None if idle else seconds * next(shown)
                late.append(
                    StepOutcome(
                        gamma, size, prompts, context, *drafts.told(), committed, interval, verify, passes, names
                    )
                )  # fmt: skip
            idle = False
            for request, length in batch.leave():
                run.served[request] = length
                run.latency_s.append(clock - source.arrival(request))
            source.served(committed, batch.running)
            run.add(gamma, phase, size, committed, drafts.count, seconds)
            asked = gamma
            while len(late) > self.lag:
                policy.observe(late.popleft())
        while late:
            policy.observe(late.popleft())
        run.served.update(batch.abort(0))
        return run


def _shown(noise: Noise, seed: int) -> Iterator[float]:
    """Endless factors from clean to shown times, one a step, the same for every policy."""
    rng = np.random.default_rng((seed, 5))
    while True:
        slow = np.where(rng.random(BLOCK) < noise.outliers, noise.slow, 1.0)
        yield from (slow * np.exp(rng.normal(0.0, noise.sigma, BLOCK))).tolist()
