"""The grid: what is simulated, by class."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vllm_hust_vspec.simulate.hosts import HOSTS, Host, gpu
from vllm_hust_vspec.simulate.steady import OUTPUT, best_gamma, goodput
from vllm_hust_vspec.simulate.texts import Nature, Offers, expected_tokens
from vllm_hust_vspec.simulate.workload import NOMINAL, Phase, Workload

Class = Literal["stationary", "moving", "waves", "open", "shift"]
Size = Literal["full", "quick"]
CLASSES: tuple[Class, ...] = ("stationary", "moving", "waves", "open", "shift")
STEPS = 200  # decode steps of a stationary job at the best gamma up to 4
ACCEPTANCES = ("high", "middling", "low", "mixed")
CONCURRENCIES = (1, 4, 16, 64, 128, 256)
LONE = "npu-sync"  # a drafter so slow that hardly anything pays: stationary cells only


@dataclass(frozen=True, slots=True)
class Cell:
    """cls: how it is judged. load, texts: its place in the grid, for reports."""

    cls: Class
    host: Host
    workload: Workload
    load: str
    texts: str

    @property
    def name(self) -> str:
        return f"{self.host.name}, {self.texts}, {self.load}"


def grid(size: Size) -> list[Cell]:
    """Every cell, without seeds and largest gammas."""
    full = size == "full"
    moving = [host for host in HOSTS.values() if host.name != LONE]
    some = moving if full else [HOSTS[name] for name in ("npu-eagle", "moe", "cpu-draft")]
    shifting = [HOSTS[name] for name in ("npu-eagle", "gpu", "moe", "cpu-draft", "cpu-ngram")]
    return [
        *stationary(HOSTS.values(), CONCURRENCIES if full else (1, 16, 128)),
        *(cell for host in some for cell in moving_loads(host)),
        *waves(),
        *(open_loop(HOSTS[name]) for name in ("npu-eagle", "gpu", "moe", "cpu-ngram")[: 4 if full else 2]),
        *shifts(shifting if full else shifting[:2], (1, 4, 16, 64, 128) if full else (4, 64)),
    ]


def stationary(hosts: Iterable[Host], concurrencies: Sequence[int]) -> Iterator[Cell]:
    for host in hosts:
        for concurrency in concurrencies:
            for acceptance in ACCEPTANCES:
                nature = host.nature(acceptance)
                best = best_gamma(host, concurrency, nature, 4)
                steps = STEPS * expected_tokens(nature, [best])[0] / NOMINAL
                workload = Workload(f"stationary {concurrency} {acceptance}", (Phase(concurrency, nature, steps),))
                yield Cell("stationary", host, workload, f"{concurrency} at once", acceptance)


def moving_loads(host: Host) -> Iterator[Cell]:
    """Bursts of load, shifts of acceptance, drain tails."""

    def cell(load: str, texts: str, phases: Sequence[tuple[int, str]], steps: int, **more: object) -> Cell:
        made = tuple(Phase(concurrency, host.nature(rates), steps) for concurrency, rates in phases)
        workload = Workload(f"{load} {texts}", made, **more)  # type: ignore[arg-type]
        return Cell("moving", host, workload, load, texts)

    yield cell("bursts 2/64", "middling", [(2, "middling"), (64, "middling")] * 2, 200)
    yield cell("bursts 4/256", "high", [(4, "high"), (256, "high")] * 2, 200)
    yield cell("ladder 256..1", "middling", [(size, "middling") for size in (256, 64, 16, 4, 1)], 150)
    yield cell("ladder 1..256..8", "mixed", [(size, "mixed") for size in (1, 8, 64, 256, 64, 8)], 150)
    yield cell("4 at once", "high/low", [(4, "high"), (4, "low")] * 2, 200)
    yield cell("16 at once", "none/high", [(16, "none"), (16, "high")] * 2, 150)
    yield cell("32 at once", "middling/low/high", [(32, name) for name in ("middling", "low", "high")], 200)
    yield cell("128 at once", "high/low", [(128, "high"), (128, "low")] * 2, 150)
    yield cell(
        "drain of 128", "middling", [(128, "middling")] * 8, 1, kind="drain", output=(20, 600), requests=192
    )  # fmt: skip


# Share of tokens at which the look-up drafter offers, tokens of a burst, tokens until there is enough to look up, and
# acceptance, as our demo saw them on a real CPU server.
LOOKED_UP: dict[str, Nature] = {
    "log lines": Nature((0.98, 0.98, 0.97, 0.97), Offers(0.97, 60.0)),
    "copying": Nature((0.80, 0.85, 0.85, 0.85), Offers(0.60, 12.0, 4)),
    "code": Nature((0.75,), Offers(0.45, 6.0, 16)),
    "arithmetic": Nature((0.45, 0.45, 0.40, 0.40), Offers(0.50, 3.0, 12)),
    "story": Nature((0.35,), Offers(0.30, 2.0, 20)),
}
DRAFTED = {name: Nature(name) for name in ACCEPTANCES}
WAVES = {1: 200, 8: 60, 32: 40}  # requests at once -> tokens of each answer
ROUNDS = 2


def waves() -> Iterator[Cell]:
    """A benchmark client's waves; a controller is kept from the first to the last."""
    gpu_ngram = replace(HOSTS["gpu"], name="gpu-ngram", cost=_no_passes)
    for host, natures in ((HOSTS["cpu-ngram"], LOOKED_UP), (gpu_ngram, LOOKED_UP), (HOSTS["npu-draft"], DRAFTED)):
        phases = [
            Phase(size, nature, output=output, label=f"{name} x{size}")
            for size, output in WAVES.items()
            for name, nature in natures.items()
            for _ in range(ROUNDS)
        ]
        yield Cell("waves", host, Workload("waves", tuple(phases), "waves"), "waves", "by wave")


def _no_passes(b: int, v: int, d: int, p: int, c: int) -> float:
    return gpu(b, v, 0, p, c)


def open_loop(host: Host) -> Cell:
    """Requests at times of their own, calm and burst; loads are shares of what the host can do without drafts."""
    nature = host.nature("middling")
    capacity = goodput(host, 32, nature, [0])[0] / OUTPUT
    phases = [Phase(count, nature, rate=share * capacity) for count, share in ((40, 0.4), (120, 1.3), (40, 0.4))]
    return Cell("open", host, Workload("open", tuple(phases), "open"), "calm/burst/calm", "middling")


def shifts(hosts: Sequence[Host], concurrencies: Sequence[int]) -> Iterator[Cell]:
    """One sharp shift of acceptance, to see how soon a controller follows."""
    pairs = (("high", "low"), ("low", "high"), ("high", "none"), ("none", "high"), ("middling", "low"))
    for host in hosts:
        for concurrency in concurrencies:
            for before, after in pairs:
                phases = tuple(Phase(concurrency, host.nature(rates), 250) for rates in (before, after))
                workload = Workload(f"shift {concurrency} {before} {after}", phases)
                yield Cell("shift", host, workload, f"{concurrency} at once", f"{before} to {after}")
