"""One cell, one seed, every policy: what each of them makes of the same texts."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control import GammaController, make_controller
from vllm_hust_vspec.settings import AdaptiveSettings
from vllm_hust_vspec.simulate.cells import Cell
from vllm_hust_vspec.simulate.engine import Cost, Engine, Policy, Run
from vllm_hust_vspec.simulate.hosts import distorted
from vllm_hust_vspec.simulate.policies import Bandit, BatchTable, Constant, ThroughputRule
from vllm_hust_vspec.simulate.steady import best_gamma

ONLINE, WARM = "online", "online, state file"
WRONG = {"online, model 20 % low": 0.8, "online, model 20 % high": 1.2}
BASELINES = ("batch table", "UCB bandit", "throughput rule")
TRAINED_BY = 1000  # added to the seed of the run that leaves the state file
WINDOW, CLOSE = 20, 0.98
TRUE_FROM, TRUTH = 2000, 4  # seeds that tell a shift's best gammas, beside those of the runs


@dataclass(slots=True)
class Result:
    """speeds: tokens/s by policy (open loop: 1 / mean latency), fixed gammas as "gamma 0", ...

    long_run_best: the gamma that a stationary cell's true costs and acceptance make best. oracle: speed of the best
    fixed gamma of each phase. settled: a shift's steps and verified drafts until the controller is within 2 % of the
    new best, None where no change is asked. None also where a class does not have them.
    """

    cls: str
    host: str
    load: str
    texts: str
    seed: int
    max_gamma: int
    speeds: dict[str, float] = field(default_factory=dict)
    long_run_best: int | None = None
    oracle: float | None = None
    settled: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return f"{self.host}, {self.texts}, {self.load}"

    @property
    def best_fixed(self) -> float:
        return max(self.speeds[fixed(gamma)] for gamma in range(self.max_gamma + 1))

    def efficiency(self, policy: str) -> float:
        """Speed against the best single gamma, 0 included."""
        return self.speeds[policy] / self.best_fixed

    def against_none(self, policy: str) -> float:
        return self.speeds[policy] / self.speeds[fixed(0)]


def fixed(gamma: int) -> str:
    return f"gamma {gamma}"


def online(max_gamma: int, seed: int) -> GammaController:
    return make_controller(AdaptiveSettings(policy="online", min_gamma=0), max_gamma=max_gamma, seed=seed)


def compare(cell: Cell, seed: int, max_gamma: int, variants: bool = True) -> list[Result]:
    """Run every policy of the cell's class; several results for waves, one for each kind of wave.

    variants: also start the online policy from a state file, and from ones whose step times are wrong.
    """
    if cell.cls == "shift":
        return [_shift(cell, seed, max_gamma)]
    engine = _engine(cell, cell.host.cost)
    texts = cell.workload.texts(seed)
    runs = {
        name: engine.run(policy, seed, texts)
        for name, policy in _policies(cell, seed, max_gamma, variants and cell.cls == "stationary")
    }
    if cell.cls == "waves":
        return list(_waves(cell, seed, max_gamma, runs))
    result = Result(cell.cls, cell.host.name, cell.load, cell.texts, seed, max_gamma)
    if cell.cls == "open":
        result.speeds = {name: 1.0 / float(np.mean(run.latency_s)) for name, run in runs.items()}
    elif cell.cls == "stationary":
        phase = cell.workload.phases[0]
        result.long_run_best = best_gamma(cell.host, phase.concurrency, phase.nature, max_gamma)
        result.speeds = {name: run.rate for name, run in runs.items()}
    else:
        result.speeds, result.oracle = _phased(len(cell.workload.phases), max_gamma, runs)
    return [result]


def _engine(cell: Cell, cost: Cost) -> Engine:
    return Engine(cost, cell.workload, cell.host.lag, cell.host.budget, cell.host.noise)


def _policies(cell: Cell, seed: int, max_gamma: int, variants: bool) -> list[tuple[str, Policy]]:
    host = cell.host
    policies: list[tuple[str, Policy]] = [(fixed(gamma), Constant(gamma)) for gamma in range(max_gamma + 1)]
    baselines: tuple[Callable[[], Policy], ...] = (
        lambda: BatchTable(host, max_gamma),
        lambda: Bandit(max_gamma),
        lambda: ThroughputRule(host, max_gamma),
    )
    policies += [(name, make()) for name, make in zip(BASELINES, baselines, strict=True)]
    policies.append((ONLINE, online(max_gamma, seed)))
    if variants:
        for name, factor in {WARM: 1.0, **WRONG}.items():
            policies.append((name, _restored(cell, seed, max_gamma, factor)))
    return policies


def _restored(cell: Cell, seed: int, max_gamma: int, factor: float) -> GammaController:
    """A controller that begins where another run ended, on a host whose drafting steps took `factor` times as long."""
    before = online(max_gamma, seed)
    _engine(cell, distorted(cell.host.cost, factor)).run(before, seed + TRAINED_BY)
    state: dict[str, Any] = json.loads(json.dumps(before.snapshot()))
    after = online(max_gamma, seed)
    after.restore(state)
    return after


def _phased(phases: int, max_gamma: int, runs: dict[str, Run]) -> tuple[dict[str, float], float]:
    """(speeds by policy, of the best gamma by phase), every phase weighed by the tokens that gamma 0 served in it."""
    parts = {name: run.by_phase(phases) for name, run in runs.items()}
    weights = parts[fixed(0)][0]
    seconds = {name: _per_token(*part) * weights for name, part in parts.items()}
    total = float(weights.sum())
    best = np.min([seconds[fixed(gamma)] for gamma in range(max_gamma + 1)], axis=0)
    return {name: total / float(spent.sum()) for name, spent in seconds.items()}, total / float(best.sum())


def _per_token(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds per token by phase; 0 in a phase that was stepped over within one step."""
    rates: NDArray[np.float64] = np.divide(seconds, tokens, out=np.zeros_like(seconds), where=tokens > 0)
    return rates


def _waves(cell: Cell, seed: int, max_gamma: int, runs: dict[str, Run]) -> list[Result]:
    phases = cell.workload.phases
    labels = list(dict.fromkeys(phase.label for phase in phases))
    of = np.array([labels.index(phase.label) for phase in phases])
    results = []
    parts = {name: run.by_phase(len(phases)) for name, run in runs.items()}
    for index, label in enumerate(labels):
        texts, _, size = label.rpartition(" x")
        result = Result(cell.cls, cell.host.name, f"waves of {size}", texts, seed, max_gamma)
        for name, (tokens, seconds) in parts.items():
            result.speeds[name] = float(tokens[of == index].sum() / seconds[of == index].sum())
        results.append(result)
    return results


def _shift(cell: Cell, seed: int, max_gamma: int) -> Result:
    result = Result(cell.cls, cell.host.name, cell.load, cell.texts, seed, max_gamma)
    run = _engine(cell, cell.host.cost).run(online(max_gamma, seed), seed)
    old, new = _true_speeds(cell, max_gamma)
    if new[int(old.argmax())] < CLOSE * new.max():
        first = run.phases.index(1)
        steps = _settles(new[run.gammas[first:]] / new.max())
        span = range(first, first + steps)
        verified = sum(run.drafts[at] // run.gammas[at - 1] for at in span if run.drafts[at])
        result.settled = steps, verified
    return result


@cache
def _true_speeds(cell: Cell, max_gamma: int) -> NDArray[np.float64]:
    """Tokens/s of every fixed gamma in each phase [phases, max_gamma + 1], over TRUTH seeds of their own."""
    engine, phases = _engine(cell, cell.host.cost), len(cell.workload.phases)
    tokens, seconds = np.zeros((2, phases, max_gamma + 1))
    for seed in range(TRUE_FROM, TRUE_FROM + TRUTH):
        texts = cell.workload.texts(seed)
        for gamma in range(max_gamma + 1):
            served, spent = engine.run(Constant(gamma), seed, texts).by_phase(phases)
            tokens[:, gamma] += served
            seconds[:, gamma] += spent
    speeds: NDArray[np.float64] = tokens / seconds
    return speeds


def _settles(quality: NDArray[np.float64]) -> int:
    """The first step from which on WINDOW steps are CLOSE to the best on average; all steps if there is none."""
    if len(quality) < WINDOW:
        return len(quality)
    means = np.convolve(quality, np.full(WINDOW, 1.0 / WINDOW), "valid")
    at = np.flatnonzero(means >= CLOSE)
    return int(at[0]) if len(at) else len(quality)
