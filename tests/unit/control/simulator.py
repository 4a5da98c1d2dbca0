"""A small serving engine to drive controllers with: closed loop, joins and finishes, prefill mixed in, async lag.

Texts are fixed by the seed: whether a token can be guessed, and whether a drafter offers anything at it, does not
depend on the gammas chosen, so that runs of one seed compare like with like.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vllm_hust_vspec.control import Decision, GammaController, StepContext, StepOutcome

Surface = Callable[[int, int, int, int, int], float]
"""(requests, verified tokens, drafter passes, prompt tokens, context tokens) -> milliseconds."""


def npu(b: int, v: int, d: int, p: int, c: int) -> float:
    padded = 16 * math.ceil(v / 16)
    return 24.0 + 0.11 * max(0, padded - 96) + 0.05 * b + d * (2.2 + 0.006 * b) + 0.14 * p + 1e-4 * c


def gpu(b: int, v: int, d: int, p: int, c: int) -> float:
    return max(9.0, 4.0 + 0.045 * (v + p)) + 0.01 * b + d * 0.9 + 3e-5 * c


def cpu(b: int, v: int, d: int, p: int, c: int) -> float:
    return 11.0 + 3.1 * v + 0.2 * b + d * (2.0 + 0.35 * b) + 2.6 * p + 4e-4 * c


def cpu_ngram(b: int, v: int, d: int, p: int, c: int) -> float:
    return 14.0 + 2.6 * v + (2.5 if v > b else 0.0) + 2.6 * p + 4e-4 * c


def moe(b: int, v: int, d: int, p: int, c: int) -> float:
    return 9.0 + 22.0 * (1.0 - math.exp(-v / 48.0)) + 0.03 * (v + p) + d * 1.6 + 5e-5 * c


def costly_drafter(b: int, v: int, d: int, p: int, c: int) -> float:
    return 20.0 + 0.04 * (v + p) + d * (6.5 + 0.02 * b)


SURFACES: dict[str, Surface] = {
    "npu": npu,
    "gpu": gpu,
    "cpu": cpu,
    "cpu-ngram": cpu_ngram,
    "moe": moe,
    "costly-drafter": costly_drafter,
}
PROFILES: dict[str, tuple[float, ...]] = {
    "high": (0.92, 0.9, 0.88, 0.86),
    "middling": (0.7, 0.64, 0.6, 0.56),
    "low": (0.3, 0.22, 0.18, 0.15),
    "none": (0.03, 0.03, 0.03, 0.03),
}


@dataclass(slots=True)
class Request:
    """rates: acceptance by draft position. luck, offering: by token of the text, how hard it is to guess and whether
    the drafter offers anything there. drafts: asked for in the last step, None before the first."""

    name: str
    length: int
    context: int
    rates: tuple[float, ...]
    luck: np.ndarray
    offering: np.ndarray
    served: int = 0
    drafts: int | None = None

    def offer(self) -> int:
        return (self.drafts or 0) if self.offering[self.served] else 0

    def accept(self, proposed: int) -> int:
        accepted = 0
        while (
            accepted < proposed and self.luck[self.served + accepted] < self.rates[min(accepted, len(self.rates) - 1)]
        ):
            accepted += 1
        return accepted


@dataclass(slots=True)
class Run:
    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    gammas: list[int] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


class Constant:
    """The baseline: one gamma for ever."""

    def __init__(self, gamma: int) -> None:
        self.gamma = gamma

    def decide(self, step: StepContext) -> Decision:
        return Decision(self.gamma, "fixed")

    def observe(self, outcome: StepOutcome) -> None:
        pass


@dataclass(slots=True)
class Engine:
    """surface: cost. rates(done): acceptance by position of a request that joins when `done` of the job is served.

    bursts: (share of tokens at which the drafter offers, tokens that a burst lasts), None = the drafter always offers.
    lag: steps after its decide that an outcome arrives, 0 = before the next decide.
    """

    surface: Surface
    rates: Callable[[float, np.random.Generator], Sequence[float]]
    concurrency: Callable[[float], int]
    tokens: int
    bursts: tuple[float, float] | None = None
    lag: int = 0
    noise: float = 0.04
    outliers: float = 0.005
    budget: int = 8192
    output: int = 160
    prompt: int = 96

    def run(self, controller: GammaController | Constant, seed: int) -> Run:
        noise = np.random.default_rng((seed, 1))
        run, alive, joined = Run(), list[Request](), 0
        late: deque[StepOutcome] = deque()
        while run.tokens < self.tokens:
            prefill = 0
            while len(alive) < self.concurrency(run.tokens / self.tokens) and prefill < 2048:
                alive.append(self._join(joined, run.tokens / self.tokens, seed))
                prefill += alive[-1].context
                joined += 1
            verifying = [request for request in alive if request.drafts is not None]
            context = sum(request.context for request in alive)
            proposed = [request.offer() for request in verifying]
            accepted = [request.accept(drafts) for request, drafts in zip(verifying, proposed, strict=True)]
            verify = len(verifying) + sum(proposed)
            gamma = controller.decide(StepContext(len(alive), prefill, context, self.budget, verify)).gamma
            clean = self.surface(len(alive), verify, gamma, prefill, context) / 1e3
            slow = 6.0 if noise.random() < self.outliers else 1.0
            shown = clean * slow * math.exp(noise.normal(0.0, self.noise))
            asked = [(r.name, n, a) for r, n, a in zip(verifying, proposed, accepted, strict=True) if r.drafts]
            got = {request.name: drafts + 1 for request, drafts in zip(verifying, accepted, strict=True)}
            committed = 0
            for request in alive:
                kept = min(got.get(request.name, 1), request.length - request.served)
                request.served += kept
                request.context += kept
                request.drafts = gamma
                committed += kept
            names, offers, hits = zip(*asked, strict=True) if asked else ((), (), ())
            late.append(
                StepOutcome(
                    gamma, len(alive), prefill, context, offers, hits, committed,
                    shown if run.steps else None, verify, gamma, names,
                )
            )  # fmt: skip
            alive = [request for request in alive if request.served < request.length]
            run.tokens += committed
            run.seconds += clean
            run.steps += 1
            run.gammas.append(gamma)
            while len(late) > self.lag:
                controller.observe(late.popleft())
        return run

    def _join(self, index: int, done: float, seed: int) -> Request:
        rng = np.random.default_rng((seed, 2, index))
        prompt = int(rng.integers(self.prompt // 2, 2 * self.prompt))
        length = int(rng.integers(self.output // 2, self.output * 3 // 2))
        luck = rng.random(length + 32)
        offering = np.ones(length + 32, dtype=bool)
        if self.bursts is not None:
            share, mean = self.bursts
            leave, enter = 1.0 / mean, share / (1.0 - share) / mean
            offering[0] = rng.random() < share
            for i, draw in enumerate(rng.random(length + 31)):
                offering[i + 1] = offering[i] != (draw < (leave if offering[i] else enter))
        return Request(f"r{index}", length, prompt, tuple(self.rates(done, rng)), luck, offering)


def always(rates: Sequence[float]) -> Callable[[float, np.random.Generator], Sequence[float]]:
    return lambda done, rng: rates


def best_fixed(engine: Engine, max_gamma: int, seed: int) -> tuple[int, dict[int, float]]:
    """The gamma of highest tokens/s, and the tokens/s of every gamma."""
    rates = {gamma: engine.run(Constant(gamma), seed).rate for gamma in range(max_gamma + 1)}
    return max(rates, key=rates.__getitem__), rates
