"""The table, the line that says what it shows, and the gaps of divergences."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vllm_hust_vspec.demo.drafter import DRAFTS
from vllm_hust_vspec.demo.identity import Judged
from vllm_hust_vspec.demo.plan import ADAPTIVE, FIXED, MAX_GAMMA, TARGET
from vllm_hust_vspec.demo.results import CellResult, Ratio, Results, Speculation, geometric_mean

FLOOR = 0.95
_SHOWN = 8  # divergences that are listed one by one


def table(results: Results) -> Table:
    """One row a cell; speeds in tokens/s."""
    made = Table(
        title=f"{_drafts(results)}, gamma up to {MAX_GAMMA}",
        title_style="bold",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    made.add_column("prompts", no_wrap=True)
    for heading in ("conc", "target", *(f"g{gamma}" for gamma in range(1, MAX_GAMMA + 1)), "adaptive", "accept"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column(f"gamma 0/../{MAX_GAMMA} %", justify="right", no_wrap=True)
    made.add_column("x target", no_wrap=True)
    made.add_column("x best g", no_wrap=True)
    made.add_column("tokens", no_wrap=True)
    for cell in results.cells:
        speculation = cell.speculation(ADAPTIVE)
        best = cell.best_fixed()
        made.add_row(
            cell.cell.kind,
            str(cell.cell.concurrency),
            f"{cell.tokens_per_s(TARGET):.0f}",
            *(f"{cell.tokens_per_s(mode):.0f}{'*' if mode == best else ''}" for mode in FIXED),
            f"{cell.tokens_per_s(ADAPTIVE):.0f}",
            _length(speculation),
            _histogram(speculation),
            _ratio(cell.to_target()),
            _ratio(cell.to_best_fixed()),
            _identity(cell.divergences()),
        )
    return made


def summary(results: Results) -> str:
    """One line: what adaptive gamma gains and where it loses, best and worst by name."""
    cells = results.cells
    ratios = [cell.to_target().mean for cell in cells]
    worst = min(cells, key=lambda cell: cell.to_target().mean)
    best = max(cells, key=lambda cell: cell.to_target().mean)
    to_best = geometric_mean([cell.to_best_fixed().mean for cell in cells])
    single = max(FIXED, key=lambda mode: _mean_gain(cells, mode))
    below = sum(ratio < FLOOR for ratio in ratios)
    return (
        f"Adaptive gamma runs at {geometric_mean(ratios):.2f}x target-only on average, "
        f"from {min(ratios):.2f}x ({_name(worst)}) to {max(ratios):.2f}x ({_name(best)}), "
        f"{_count(below, 'cell')} below {FLOOR}x; it reaches {to_best:.2f}x of the best fixed gamma of each cell, "
        f"picked afterwards; the best single gamma for all, {single}, is at {_mean_gain(cells, single):.2f}x "
        f"target-only, {min(_gain(cell, single) for cell in cells):.2f}x at worst."
    )


def identity(results: Results) -> list[str]:
    """What became of token identity, and the gaps beside the noise that explains them."""
    judged, noise = results.judged, results.noise
    measured = (
        f"noise of target-only against itself: its top-2 gap differs by up to {noise.largest:.3f} nats "
        f"between batch widths ({noise.samples} samples)"
    )
    if not judged:
        return [f"Every token of every request is target-only's; {measured}."]
    lines = [f"{_count(len(judged), 'request')} diverged, {results.unexplained} unexplained; {measured}. Largest gaps:"]
    by_gap = sorted(judged, key=lambda one: (one.explained, -one.gap))
    lines += [_divergence(one) for one in by_gap[:_SHOWN]]
    if len(by_gap) > _SHOWN:
        lines.append(f"  and {len(by_gap) - _SHOWN} more with smaller gaps (all are in the JSON)")
    return lines


def show(results: Results, console: Console) -> None:
    host = results.host
    console.print(
        f"{host['model']} in {host['dtype']}, {host['cores']} cores, vLLM {host['vllm']}; "
        "tokens/s from the first request to the last answer; * best fixed gamma; "
        "ratios of the means, with the least..greatest of the repeats; "
        "adaptive starts cold in the first row and keeps what it learns from row to row",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table(results), highlight=False)
    for line in identity(results):
        console.print(line, highlight=False, soft_wrap=True)
    if results.faults:
        console.print(
            f"The controller failed {results.faults} times: the figures of adaptive are those of a pinned gamma."
        )
    console.print(summary(results), style="bold", highlight=False, soft_wrap=True)


def _drafts(results: Results) -> str:
    method = results.host["method"]
    return f"--method {method}: {DRAFTS[method]}"


def _name(cell: CellResult) -> str:
    return f"{cell.cell.kind}, {cell.cell.concurrency} at once"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _gain(cell: CellResult, mode: str) -> float:
    return cell.tokens_per_s(mode) / cell.tokens_per_s(TARGET)


def _mean_gain(cells: list[CellResult], mode: str) -> float:
    return geometric_mean([_gain(cell, mode) for cell in cells])


def _length(speculation: Speculation | None) -> str:
    length = speculation.acceptance_length if speculation else None
    return "-" if length is None else f"{length:.2f}"


def _histogram(speculation: Speculation | None) -> str:
    """Shares of steps by gamma, in per cent, as 10/0/0/20/70."""
    counts = speculation.histogram if speculation else {}
    total = sum(counts.values())
    return "/".join(f"{100 * counts.get(gamma, 0) / total:.0f}" for gamma in range(MAX_GAMMA + 1)) if total else "-"


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.mean:.2f} ({ratio.least:.2f}..{ratio.greatest:.2f})"


def _identity(judged: list[Judged]) -> str:
    if not judged:
        return "identical"
    unexplained = sum(not one.explained for one in judged)
    return f"{len(judged)} explained" if not unexplained else f"{unexplained} of {len(judged)} UNEXPLAINED"


def _divergence(judged: Judged) -> str:
    one = judged.divergence
    verdict = "within the noise" if judged.explained else "UNEXPLAINED"
    return (
        f"  {one.kind} x{one.concurrency}, {one.mode}, request {one.request}, token {one.position}: "
        f"gap {judged.gap:.3f} nats, {verdict}"
    )
