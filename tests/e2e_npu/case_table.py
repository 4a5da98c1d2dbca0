"""The table at the end of a run: what was tried on the emulated NPU, and whether the tokens stayed the same.

Tests hand in rows through the fixture `record_case`. Each xdist worker passes its rows to the controller when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case. drafts and accepted are counts of tokens; identical: the same tokens as the reference has."""

    host: str
    method: str
    runner: str
    graph_mode: str
    scheduling: str
    drafts: int
    accepted: int
    identical: bool

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        return tuple({True: "yes", False: "NO"}[v] if isinstance(v, bool) else str(v) for v in astuple(self))


HEADINGS = tuple(field.name.replace("_", " ") for field in fields(CaseRow))
ROWS = pytest.StashKey[list[CaseRow]]()


def layout(rows: Iterable[CaseRow]) -> list[str]:
    """The table's lines, columns aligned, rows in order of their cells."""
    cells = [HEADINGS, *sorted(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def recorder(config: pytest.Config, host: str) -> Callable[..., None]:
    """record_case(method=…, runner=…, …): adds a row for `host` to the table."""

    def record(**cells: Any) -> None:
        config.stash.setdefault(ROWS, []).append(CaseRow(host=host, **cells))

    return record


class CaseTable:
    """The pytest hooks that gather the rows and print them."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["case_rows"] = [asdict(row) for row in session.config.stash.get(ROWS, [])]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        rows = getattr(node, "workeroutput", {}).get("case_rows", [])
        node.config.stash.setdefault(ROWS, []).extend(CaseRow(**row) for row in rows)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        rows = config.stash.get(ROWS, [])
        if rows:
            terminalreporter.section("cases on the emulated NPU")
            for line in layout(rows):
                terminalreporter.write_line(line)
