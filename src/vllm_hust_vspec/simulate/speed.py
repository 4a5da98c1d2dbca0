"""What a decision costs, and whether memory stays bounded: the controller alone, without an engine."""

import json
import statistics
import time
from dataclasses import dataclass

import numpy as np

from vllm_hust_vspec.control import Decision, GammaController, StepContext, StepOutcome
from vllm_hust_vspec.simulate.compare import online
from vllm_hust_vspec.simulate.engine import Engine
from vllm_hust_vspec.simulate.gates import Gate
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.workload import Phase, Workload

REQUESTS = 256
DECIDE_US, OBSERVE_US = 50.0, 200.0
FLAT = 1.05


@dataclass(slots=True)
class Timed:
    """Passes on, and keeps the processor microseconds of each call."""

    controller: GammaController
    decides: list[float]
    observes: list[float]

    def decide(self, step: StepContext) -> Decision:
        start = time.thread_time()
        decision = self.controller.decide(step)
        self.decides.append(1e6 * (time.thread_time() - start))
        return decision

    def observe(self, outcome: StepOutcome) -> None:
        start = time.thread_time()
        self.controller.observe(outcome)
        self.observes.append(1e6 * (time.thread_time() - start))


def speed_gates(max_gamma: int) -> list[Gate]:
    """Processor time of decide and observe with 256 requests: means, so that rare refits count."""
    host = HOSTS["npu-eagle"]
    workload = Workload("speed", (Phase(REQUESTS, host.nature("middling"), 600),))
    timed = Timed(online(max_gamma, 0), [], [])
    Engine(host.cost, workload, host.lag).run(timed, 0)
    return [
        _timed("decide", timed.decides, DECIDE_US),
        _timed("observe", timed.observes, OBSERVE_US),
    ]


def _timed(name: str, micros: list[float], limit: float) -> Gate:
    mean = statistics.fmean(micros)
    percentile = sorted(micros)[int(0.99 * len(micros))]
    where = f"median {statistics.median(micros):.0f}, 99 % below {percentile:.0f}, on this machine now"
    return Gate(f"{name} at {REQUESTS} requests", f"<= {limit:.0f} us", f"{mean:.0f} us", mean <= limit, where)


def memory_gate(max_gamma: int, steps: int) -> Gate:
    """The state's size after so many steps of every load, against half of them."""
    controller, rng = online(max_gamma, 0), np.random.default_rng(0)
    sizes = []
    for index in range(steps):
        batch = int(2.0 ** rng.uniform(0.0, 8.0))
        gamma = controller.decide(StepContext(batch, 0, 200 * batch, 8192, batch)).gamma
        accepted = tuple(rng.binomial(gamma, 0.6, batch).tolist())
        controller.observe(
            StepOutcome(
                gamma, batch, 0, 200 * batch, (gamma,) * batch, accepted, batch + sum(accepted),
                0.02 + 1e-4 * batch * (1 + gamma), batch * (1 + gamma), gamma,
            )
        )  # fmt: skip
        if index + 1 in (steps // 2, steps):
            sizes.append(len(json.dumps(controller.snapshot())))
    grown = sizes[1] / sizes[0]
    where = f"{sizes[1]} bytes of state after {steps} steps of all loads"
    return Gate("memory bounded", f"<= {FLAT:.2f}x", f"{grown:.3f}x", grown <= FLAT, where)
