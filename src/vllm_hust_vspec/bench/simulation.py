"""All cells, seeds and largest gammas, spread over processes."""

import platform
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.simulate.cells import Cell, Class, Size, grid
from vllm_hust_vspec.simulate.compare import ONLINE, Result, compare
from vllm_hust_vspec.simulate.gates import Gate, Row, gates, rows
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.speed import memory_gate, speed_gates

SCHEMA_VERSION = 1
MEMORY_STEPS = 12_000


@dataclass(slots=True)
class Simulation:
    """What was simulated, and what came out."""

    size: Size
    seeds: tuple[int, ...]
    max_gammas: tuple[int, ...]
    workers: int
    results: list[Result]
    others: list[Gate] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def run(
        cls,
        size: Size,
        seeds: tuple[int, ...],
        max_gammas: tuple[int, ...],
        classes: Sequence[Class],
        workers: int,
    ) -> Self:
        """Simulate; the starts from state files and the shifts only at the smallest of the largest gammas."""
        cells = [cell for cell in grid(size) if cell.cls in classes]
        jobs = [
            (number, seed, top)
            for top in max_gammas
            for seed in seeds
            for number, cell in enumerate(cells)
            if cell.cls != "shift" or top == max_gammas[0]
        ]
        results = _spread(cells, jobs, max_gammas[0], workers)
        others = [*speed_gates(max_gammas[0]), memory_gate(max_gammas[0], MEMORY_STEPS)]
        return cls(size, seeds, max_gammas, workers, results, others)

    @property
    def gates(self) -> list[Gate]:
        return gates(self.results, self.others)

    @property
    def rows(self) -> list[Row]:
        return rows(self.results)

    def as_json(self) -> dict[str, Any]:
        """docs/simulator.md says what is what."""
        return {
            "schema_version": SCHEMA_VERSION,
            "vspec": __version__,
            "python": platform.python_version(),
            "grid": self.size,
            "seeds": list(self.seeds),
            "max_gammas": list(self.max_gammas),
            "workers": self.workers,
            "seconds": round(self.seconds, 1),
            "hosts": {name: host.source for name, host in HOSTS.items()},
            "gates": [asdict(gate) for gate in self.gates],
            "summary": [asdict(row) for row in self.rows],
            "cells": [_as_json(result) for result in self.results],
        }


def _as_json(result: Result) -> dict[str, Any]:
    data = asdict(result)
    if result.speeds:
        data["efficiency"] = round(result.efficiency(ONLINE), 5)
        data["against_none"] = round(result.against_none(ONLINE), 5)
    return data


def _spread(cells: list[Cell], jobs: list[tuple[int, int, int]], plain_top: int, workers: int) -> list[Result]:
    console = Console(stderr=True)
    done: dict[int, list[Result]] = {}
    with (
        Progress(
            SpinnerColumn(), TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        ) as progress,
        ProcessPoolExecutor(workers) as pool,
    ):  # fmt: skip
        task = progress.add_task("simulating", total=len(jobs))
        futures = {
            pool.submit(compare, cells[number], seed, top, top == plain_top): index
            for index, (number, seed, top) in enumerate(jobs)
        }
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            progress.advance(task)
    return [result for index in range(len(jobs)) for result in done[index]]
