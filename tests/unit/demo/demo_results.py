"""Results without a server, for the tests of tables, JSON and plot."""

from itertools import cycle

from vllm_hust_vspec.demo.identity import Divergence, Judged, Noise
from vllm_hust_vspec.demo.plan import ADAPTIVE, CELLS, FIXED, TARGET, Cell, Load, gamma_of, order
from vllm_hust_vspec.demo.results import CellResult, Results, Run, Speculation

HOST = {"model": "tiny", "cores": 2, "dtype": "bfloat16", "vllm": "0.32.0", "method": "ngram"}


def speculation(gamma: int, *, proposed: int = 40, accepted: int = 30, verifications: int = 10) -> Speculation:
    return Speculation({gamma: 50}, steps=50, proposed=proposed, accepted=accepted, verifications=verifications)


def cell_result(cell: Cell, target: float = 100.0, adaptive: tuple[float, float] = (150.0, 170.0)) -> CellResult:
    """A cell of one round: target-only at one speed, fixed-k at (100 + 10 k), adaptive at two in turn; tokens/s."""
    result = CellResult(cell, Load(cell.concurrency, 96))
    speeds = cycle(adaptive)
    for mode in order(1):
        if mode == TARGET:
            speed, counted = target, None
        elif mode == ADAPTIVE:
            speed, counted = next(speeds), speculation(2)
        else:
            gamma = gamma_of(mode)
            assert gamma is not None
            speed, counted = 100.0 + 10 * gamma, speculation(gamma)
        result.runs.append(Run(mode, 1000, 1000 / speed, counted))
    return result


def divergence(cell: Cell, mode: str = FIXED[1], gap: float = 0.1, explained: bool = True) -> Judged:
    return Judged(Divergence(cell.kind, cell.concurrency, mode, 3, 7, 11, 12, (1, 2, 3)), gap, explained)


def results(*, unexplained: int = 0, explained: int = 0) -> Results:
    cells = [cell_result(cell) for cell in CELLS]
    first = cells[0]
    first.judged += [divergence(first.cell) for _ in range(explained)]
    first.judged += [divergence(first.cell, gap=3.0, explained=False) for _ in range(unexplained)]
    return Results(cells, dict(HOST), Noise(0.25, 500))
