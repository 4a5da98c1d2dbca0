"""`vllm-hust-vspec-bench`: its verbs and their options."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vllm_hust_vspec.errors import UserError, not_built_yet
from vllm_hust_vspec.output import check_output, write_json
from vllm_hust_vspec.simulate.cells import CLASSES, Class, Size

VERBS = ("simulate",)
WIDTH = 150  # of the tables where there is no terminal
MOST_GAMMA = 16
SEEDS = {"quick": 1, "full": 5}
MAX_GAMMAS = {"quick": (4,), "full": (4, 8)}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Compare and simulate controllers of speculative decoding."""


@app.command()
def simulate(
    grid: Annotated[str, typer.Option(help="quick: a minute on two cores; full: all gates.")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Runs of each cell. Default: 1 (quick), 5 (full).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. Default: one for each core.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all results here (docs/simulator.md).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture here, a PNG.")] = None,
    max_gamma: Annotated[int | None, typer.Option(help="Largest gamma. Default: 4 (quick), 4 and 8 (full).")] = None,
    only: Annotated[str | None, typer.Option(help=f"Only these classes, of {', '.join(CLASSES)}.")] = None,
    first_seed: Annotated[int, typer.Option(help="Number of the first seed.")] = 1,
) -> None:
    """Simulate serving on several kinds of hosts: the online controller against fixed gammas and other policies."""
    begun = time.monotonic()
    size = _size(grid)
    seed_count = _within("--seeds", SEEDS[size] if seeds is None else seeds, 1, 1000)
    processes = _within("--workers", len(os.sched_getaffinity(0)) if workers is None else workers, 1, 1024)
    first = _within("--first-seed", first_seed, 0, 1_000_000)
    tops = MAX_GAMMAS[size] if max_gamma is None else (_within("--max-gamma", max_gamma, 1, MOST_GAMMA),)
    classes = _classes(only)
    for path in (json, plot):
        check_output(path)
    if json and plot and json.absolute() == plot.absolute():
        raise UserError(f"--json and --plot both name {json}; choose two files")
    from vllm_hust_vspec.bench import plots, report
    from vllm_hust_vspec.bench.simulation import Simulation

    simulation = Simulation.run(size, tuple(range(first, first + seed_count)), tops, classes, processes)
    simulation.seconds = time.monotonic() - begun
    console = Console()
    report.show(simulation, console if console.is_terminal else Console(width=WIDTH))
    if json:
        write_json(json, simulation.as_json())
        print(f"JSON: {json}")
    if plot:
        plots.draw(simulation, plot)
        print(f"plot: {plot}")


def bench(arguments: list[str]) -> None:
    """Run the command line. Raises UserError, one line with the fix."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        not_built_yet(f"vllm-hust-vspec-bench {arguments[0]}")
    try:
        app(arguments, standalone_mode=False, prog_name="vllm-hust-vspec-bench")
    except UserError:
        raise
    except Exception as error:
        describe = getattr(error, "format_message", None)
        if describe is None or type(error).__name__ == "NoArgsIsHelpError":
            raise
        message = " ".join(str(describe()).split()).rstrip(".")
        raise UserError(f"{message}; vllm-hust-vspec-bench simulate --help lists the options") from None


def _size(grid: str) -> Size:
    if grid not in SEEDS:
        raise UserError(f"--grid {grid} is unknown; choose quick or full")
    return "full" if grid == "full" else "quick"


def _classes(only: str | None) -> tuple[Class, ...]:
    if only is None:
        return CLASSES
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in CLASSES:
            raise UserError(f"--only {name} is no class of cells; choose of {', '.join(CLASSES)}")
    return tuple(cls for cls in CLASSES if cls in names)


def _within(flag: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise UserError(f"{flag} {value} is outside {low}..{high}; set it within")
    return value
