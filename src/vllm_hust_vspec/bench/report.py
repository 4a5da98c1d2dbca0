"""The tables: every policy by class, and the gates."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vllm_hust_vspec.bench.simulation import Simulation
from vllm_hust_vspec.simulate.gates import Gate, Row


def show(simulation: Simulation, console: Console) -> None:
    runs = len(simulation.results)
    console.print(
        f"Grid {simulation.size}, seeds {simulation.seeds[0]}..{simulation.seeds[-1]}, {runs} cells, "
        f"{simulation.seconds:.0f} s on {simulation.workers} processes. Efficiency: time of the best fixed gamma "
        "(0 included, picked afterwards) over the policy's; exploration and cold start are charged.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(policies(simulation.rows), highlight=False)
    console.print(verdicts(simulation.gates), highlight=False)
    missed = sum(not gate.passed for gate in simulation.gates)
    console.print(f"{len(simulation.gates) - missed} gates passed, {missed} missed", style="bold", highlight=False)


def policies(rows: list[Row]) -> Table:
    """One row a class and policy."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("class", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for heading in ("cells", "mean", "worst", "x none", "met %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worst cell", overflow="fold")
    before = None
    for row in rows:
        group = f"{row.cls}, 0..{row.max_gamma}"
        if before not in (None, group):
            table.add_section()
        table.add_row(
            group if group != before else "",
            row.policy,
            str(row.cells),
            f"{row.mean:.4f}",
            f"{row.worst:.3f}",
            f"{row.against_none:.3f}",
            f"{100 * row.met:.1f}",
            row.where,
        )
        before = group
    return table


def verdicts(gates: list[Gate]) -> Table:
    """One row a gate."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("gate", overflow="fold")
    table.add_column("asked", overflow="fold")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for gate in gates:
        table.add_row("PASS" if gate.passed else "MISS", gate.name, gate.asked, gate.measured, gate.where)
    return table
