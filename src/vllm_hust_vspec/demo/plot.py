"""The plot: speed of every mode relative to target-only, and the gammas that adaptive chose."""

import os
from pathlib import Path
from typing import Any

from vllm_hust_vspec.demo.drafter import DRAFTS
from vllm_hust_vspec.demo.plan import ADAPTIVE, CONCURRENCY, FIXED, MAX_GAMMA, TARGET
from vllm_hust_vspec.demo.results import CellResult, Results

_BLUES = ("#c6dbef", "#9ecae1", "#6baed6", "#3182bd")
_ACCENT = "#e6550d"
_GAMMAS = ("#d9d9d9", *_BLUES)


def draw(results: Results, path: Path) -> None:
    """Write a PNG; the file appears whole or not at all."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(CONCURRENCY), figsize=(15, 7.5), sharey="row", height_ratios=(2.2, 1), constrained_layout=True
    )
    for column, concurrency in enumerate(CONCURRENCY):
        cells = [cell for cell in results.cells if cell.cell.concurrency == concurrency]
        _speeds(axes[0][column], cells, f"{concurrency} at once")
        _gammas(axes[1][column], cells)
    axes[0][0].set_ylabel("speed, target-only = 1")
    axes[1][0].set_ylabel("steps by gamma")
    axes[0][0].legend(loc="upper right", fontsize=8)
    axes[1][-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, title="gamma")
    host = results.host
    figure.suptitle(
        f"Adaptive and fixed gamma against target-only: {host['model']}, {DRAFTS[host['method']]}, "
        f"vLLM {host['vllm']}, {host['cores']} CPU cores"
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, dpi=110, format="png")
        os.replace(partial, path)
    finally:
        plt.close(figure)
        partial.unlink(missing_ok=True)


def _speeds(axis: Any, cells: list[CellResult], title: str) -> None:
    width = 0.8 / (len(FIXED) + 1)
    for place, mode in enumerate((*FIXED, ADAPTIVE)):
        at = [index + (place - len(FIXED) / 2) * width for index in range(len(cells))]
        heights = [cell.tokens_per_s(mode) / cell.tokens_per_s(TARGET) for cell in cells]
        color = _ACCENT if mode == ADAPTIVE else _BLUES[place]
        axis.bar(at, heights, width, label=mode, color=color)
        if mode == ADAPTIVE:
            ratios = [cell.to_target() for cell in cells]
            below = [max(ratio.mean - ratio.least, 0.0) for ratio in ratios]
            above = [max(ratio.greatest - ratio.mean, 0.0) for ratio in ratios]
            axis.errorbar(at, heights, (below, above), fmt="none", ecolor="black", capsize=2, linewidth=0.8)
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_title(title)
    axis.set_xticks(range(len(cells)), [cell.cell.kind for cell in cells])


def _gammas(axis: Any, cells: list[CellResult]) -> None:
    bottom = [0.0] * len(cells)
    for gamma in range(MAX_GAMMA + 1):
        shares = [_share(cell, gamma) for cell in cells]
        axis.bar(range(len(cells)), shares, 0.6, bottom=bottom, color=_GAMMAS[gamma], label=str(gamma))
        bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
    axis.set_xticks(range(len(cells)), [cell.cell.kind for cell in cells])
    axis.set_ylim(0, 1)


def _share(cell: CellResult, gamma: int) -> float:
    speculation = cell.speculation(ADAPTIVE)
    counts = speculation.histogram if speculation else {}
    return counts.get(gamma, 0) / total if (total := sum(counts.values())) else 0.0
