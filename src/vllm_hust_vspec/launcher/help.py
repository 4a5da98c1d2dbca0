"""The help of `vllm-hust-vspec`: the options in their groups, with no name cut short in a narrow terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_hust_vspec.settings.catalog import OPTIONS, SECTIONS, Spec
from vllm_hust_vspec.settings.reference import describe

ABOUT = (
    "Start a vLLM server with adaptive speculative decoding. An option's value comes from its flag, else its variable "
    "(HUST_VSPEC_ and the name in capitals), else the TOML file, else its default. docs/options.md says more."
)


def print_help(own: Sequence[tuple[str, str]], console: Console | None = None) -> None:
    """Print usage, the launcher's own flags (flag, help), and every option of the schema by group."""
    console = console or Console(highlight=False)
    console.print(Text("Usage: vllm-hust-vspec [--preset NAME] [OPTIONS] [-- VLLM ARGUMENTS]", "bold"))
    console.print(Padding(Text(ABOUT), (1, 0)))
    _group(console, "Launching", own)
    for name, section in SECTIONS.items():
        rows = [(_usage(spec), describe(spec)) for spec in OPTIONS.values() if spec.section == name]
        _group(console, section.title, rows)


def metavar(spec: Spec) -> str:
    """What stands for an option's value."""
    if spec.choices:
        return "|".join(spec.choices)
    return spec.facts.metavar or {"integer": "N", "number": "X", "path": "PATH", "ids": "IDS"}.get(spec.kind, "TEXT")


def _usage(spec: Spec) -> str:
    if spec.kind == "switch":
        return f"--[no-]{spec.flag.removeprefix('--')}"
    return spec.flag if spec.choices else f"{spec.flag} {metavar(spec)}"


def _group(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left", title_style="bold cyan")
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for usage, text in rows:
        choices = next((spec.choices for spec in OPTIONS.values() if spec.flag == usage), ())
        table.add_row(Text(usage, "green"), Text(f"{' | '.join(choices)}. {text}" if choices else text))
    console.print(table)
