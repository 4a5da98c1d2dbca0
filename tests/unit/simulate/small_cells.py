"""Small jobs and a policy that keeps what it is told."""

from vllm_hust_vspec.control import Decision
from vllm_hust_vspec.simulate.cells import Cell
from vllm_hust_vspec.simulate.engine import Engine
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.workload import Phase, Workload


def workload(kind="closed", concurrency=4, rates="middling", host="npu-eagle", **more):
    phases = more.pop("phases", None) or (
        Phase(concurrency, HOSTS[host].nature(rates), more.pop("steps", 40), more.pop("wave", 0), more.pop("rate", 0)),
    )
    return Workload("small", tuple(phases), kind, **more)


def engine(work=None, host="npu-eagle", **more):
    return Engine(HOSTS[host].cost, work or workload(host=host), **more)


def cell(cls="stationary", work=None, host="npu-eagle"):
    return Cell(cls, HOSTS[host], work or workload(host=host), "4 at once", "middling")


class Recorder:
    """Gammas in turn; `events` keeps decides and observes in order."""

    def __init__(self, *gammas):
        self.gammas, self.events = gammas or (2,), []

    @property
    def contexts(self):
        return [what for kind, what in self.events if kind == "decide"]

    @property
    def outcomes(self):
        return [what for kind, what in self.events if kind == "observe"]

    def decide(self, step):
        gamma = self.gammas[len(self.contexts) % len(self.gammas)]
        self.events.append(("decide", step))
        return Decision(gamma, "fixed")

    def observe(self, outcome):
        self.events.append(("observe", outcome))
