"""The picture: how efficiencies are spread by policy, and where ours is worst."""

from pathlib import Path
from typing import Any

import numpy as np

from vllm_hust_vspec.bench.simulation import Simulation
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.output import write
from vllm_hust_vspec.simulate.compare import BASELINES, ONLINE, Result

_COLORS = {ONLINE: "#e6550d", "batch table": "#9ecae1", "UCB bandit": "#3182bd", "throughput rule": "#636363"}
_LEAST = 0.7


def draw(simulation: Simulation, path: Path) -> None:
    """Write a PNG. Raises UserError where matplotlib is missing or the file cannot be written."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UserError("--plot needs matplotlib; install vllm-hust-vspec[demo]") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    top = simulation.max_gammas[0]
    results = [result for result in simulation.results if result.speeds and result.max_gamma == top]
    classes = [cls for cls in ("stationary", "moving", "waves") if any(result.cls == cls for result in results)]
    figure, axes = plt.subplots(
        1, len(classes) + 1, figsize=(5.2 * (len(classes) + 1), 5.5), squeeze=False, constrained_layout=True
    )
    for axis, cls in zip(axes[0], classes, strict=False):
        _spread(axis, cls, [result for result in results if result.cls == cls])
    _worst(axes[0][-1], [result for result in results if result.cls in ("stationary", "moving")])
    figure.suptitle(f"Simulated serving, gamma 0..{top}, grid {simulation.size}, {len(simulation.seeds)} seeds")
    try:
        write(path, lambda partial: figure.savefig(partial, dpi=110, format="png"))
    finally:
        plt.close(figure)


def _spread(axis: Any, cls: str, results: list[Result]) -> None:
    for policy in (*BASELINES, ONLINE):
        values = np.sort([result.efficiency(policy) for result in results])
        axis.plot(
            np.linspace(0.0, 100.0, len(values)),
            np.maximum(values, _LEAST),
            label=policy,
            color=_COLORS[policy],
            linewidth=2.2 if policy == ONLINE else 1.4,
        )
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_title(f"{cls}: {len(results)} runs")
    axis.set_xlabel("share of runs, worst first, %")
    axis.set_ylabel("speed, best fixed gamma = 1")
    axis.legend(loc="lower right", fontsize=8)
    axis.grid(alpha=0.3)


def _worst(axis: Any, results: list[Result]) -> None:
    hosts = list(dict.fromkeys(result.host for result in results))
    loads = list(dict.fromkeys(result.load for result in results))
    table = np.full((len(loads), len(hosts)), np.nan)
    for result in results:
        at = loads.index(result.load), hosts.index(result.host)
        table[at] = np.nanmin([table[at], result.efficiency(ONLINE)])
    image = axis.imshow(table, cmap="RdYlGn", vmin=0.85, vmax=1.05, aspect="auto")
    for row, column in zip(*np.nonzero(~np.isnan(table)), strict=True):
        axis.text(column, row, f"{table[row, column]:.2f}", ha="center", va="center", fontsize=7)
    axis.set_xticks(range(len(hosts)), hosts, rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(len(loads)), loads, fontsize=8)
    axis.set_title("online: worst run by host and load")
    axis.figure.colorbar(image, ax=axis, shrink=0.7)
