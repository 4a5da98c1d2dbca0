"""What the results are held against: the goals of the controller, each with the figure that was measured."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_hust_vspec.simulate.compare import BASELINES, ONLINE, WARM, WRONG, Result, fixed

LONG_RUN = "best in the long run"
MOST_STEPS, MOST_DRAFTS, MANY = 40, 150, 16
ROOM = 1.02  # what the per-phase oracle must gain over the best single gamma before a cell must not lose


@dataclass(frozen=True, slots=True)
class Gate:
    """asked, measured: as printed. where: the worst cell."""

    name: str
    asked: str
    measured: str
    passed: bool
    where: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one class: efficiency against the best single gamma (mean, worst and where), worst speed against no
    speculation, share of cells that meet the class's gate for a single cell."""

    cls: str
    max_gamma: int
    policy: str
    cells: int
    mean: float
    worst: float
    where: str
    against_none: float
    met: float


def floor(cls: str, result: Result) -> float:
    """The efficiency that one cell of a class must reach."""
    if cls == "moving":
        return 1.0 if result.oracle and result.oracle >= ROOM * result.best_fixed else 0.0
    return 0.96


def rows(results: Sequence[Result]) -> list[Row]:
    """One row for each class, largest gamma and policy, ours first, the fixed gammas last."""
    out = []
    for cls, top in dict.fromkeys((result.cls, result.max_gamma) for result in results if result.speeds):
        some = [result for result in results if (result.cls, result.max_gamma) == (cls, top)]
        names = list(dict.fromkeys(name for result in some for name in result.speeds))
        ours = [name for name in names if name.startswith(ONLINE)]
        for name in (*ours, *(n for n in names if n in BASELINES), *(fixed(g) for g in range(top + 1))):
            out.append(_row(cls, top, name, [result for result in some if name in result.speeds]))
        if cls == "moving":
            out.append(_oracle(cls, top, some))
        if cls == "stationary":
            out.append(_row(cls, top, LONG_RUN, [_knowing(result) for result in some]))
    return out


def _knowing(result: Result) -> Result:
    """With a policy that is told the best gamma of the long run: what luck leaves to a controller that errs in nothing,
    as the best fixed gamma is picked after the texts are known."""
    told = result.speeds[fixed(result.long_run_best or 0)]
    return replace(result, speeds={**result.speeds, LONG_RUN: told})


def _row(cls: str, top: int, name: str, some: list[Result]) -> Row:
    worst = min(some, key=lambda result: result.efficiency(name))
    met = sum(result.efficiency(name) >= floor(cls, result) and result.against_none(name) >= 0.97 for result in some)
    return Row(
        cls, top, name, len(some),
        _mean(result.efficiency(name) for result in some), worst.efficiency(name), _named(worst),
        min(result.against_none(name) for result in some), met / len(some),
    )  # fmt: skip


def _oracle(cls: str, top: int, some: list[Result]) -> Row:
    gains = [(result.oracle or 0.0) / result.best_fixed for result in some]
    none = min((result.oracle or 0.0) / result.speeds[fixed(0)] for result in some)
    return Row(
        cls, top, "best by phase", len(some), _mean(gains), min(gains), _named(some[gains.index(min(gains))]), none, 1.0
    )


def gates(results: Sequence[Result], others: Iterable[Gate] = ()) -> list[Gate]:
    """All gates that these results can tell of; others: those measured elsewhere."""
    out: list[Gate] = []
    for top in dict.fromkeys(result.max_gamma for result in results):
        for cls in ("stationary", "moving", "waves", "open"):
            some = [result for result in results if (result.cls, result.max_gamma) == (cls, top) and result.speeds]
            if some:
                out += _of_class(cls, f"{cls}, gamma up to {top}", some)
    return [*out, *_shifts([result for result in results if result.settled]), *others]


def _of_class(cls: str, title: str, some: list[Result]) -> list[Gate]:
    def least(name: str, asked: float, of: Callable[[Result], float], among: list[Result] | None = None) -> Gate:
        among = some if among is None else among
        if not among:
            return Gate(f"{title}: {name}", f">= {asked:.2f}", "no cell asks it", True)
        worst = min(among, key=of)
        low = sum(of(result) < asked for result in among)
        where = f"{_named(worst)}; {low} of {len(among)} below"
        return Gate(f"{title}: {name}", f">= {asked:.2f}", f"{of(worst):.3f}", of(worst) >= asked, where)

    def average(name: str, asked: float, of: Callable[[Result], float]) -> Gate:
        mean = _mean(of(result) for result in some)
        return Gate(f"{title}: {name}", f">= {asked:.2f}", f"{mean:.4f}", mean >= asked)

    def efficiency(result: Result) -> float:
        return result.efficiency(ONLINE)

    out = []
    if cls == "moving":
        roomy = [result for result in some if floor(cls, result)]
        out += [
            average("mean against the best single gamma", 1.03, efficiency),
            least("worst, where the best by phase gains 2 %", 1.0, efficiency, roomy),
            least("worst against the best by phase", 0.95, lambda r: r.speeds[ONLINE] / (r.oracle or r.best_fixed)),
        ]
    else:
        out += [average("mean", 0.99, efficiency), least("worst", 0.96, efficiency)]
    out.append(least("worst against no speculation", 0.97, lambda result: result.against_none(ONLINE)))
    if all(WARM in result.speeds for result in some):
        out.append(least("worst, from a state file", 0.98, lambda result: result.efficiency(WARM)))
        out.append(
            least("worst, step times 20 % wrong at start", 0.94, lambda r: min(r.efficiency(name) for name in WRONG))
        )
    if cls in ("stationary", "moving"):
        out += [_ahead(title, name, some) for name in BASELINES]
    return out


def _ahead(title: str, name: str, some: list[Result]) -> Gate:
    ours, theirs = ([result.efficiency(policy) for result in some] for policy in (ONLINE, name))
    passed = _mean(ours) > _mean(theirs) and min(ours) > min(theirs)
    return Gate(
        f"{title}: ahead of {name}",
        f"mean > {_mean(theirs):.4f}, worst > {min(theirs):.3f}",
        f"{_mean(ours):.4f}, {min(ours):.3f}",
        passed,
    )


def _shifts(some: list[Result]) -> list[Gate]:
    out = []
    for name, limit, unit, index, many in (
        (f"after a shift, {MANY} requests or more", MOST_STEPS, "steps", 0, True),
        (f"after a shift, under {MANY} requests", MOST_DRAFTS, "verified drafts", 1, False),
    ):
        asked = [r for r in some if (int(r.load.split()[0]) >= MANY) == many and r.settled]
        if not asked:
            continue
        took = [r.settled[index] if r.settled else 0 for r in asked]
        worst = max(took)
        late = sum(taken > limit for taken in took)
        where = (
            f"{_named(asked[took.index(worst)])}; {late} of {len(took)} later, median {sorted(took)[len(took) // 2]}"
        )
        out.append(Gate(name, f"<= {limit} {unit}", f"{worst}", worst <= limit, where))
    return out


def _mean(values: Iterable[float]) -> float:
    all_values = list(values)
    return sum(all_values) / len(all_values)


def _named(result: Result) -> str:
    return f"{result.name}, seed {result.seed}"
