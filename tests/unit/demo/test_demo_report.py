import io

import pytest
from demo_results import cell_result, divergence, results
from rich.console import Console

from vllm_hust_vspec.demo import report
from vllm_hust_vspec.demo.drafter import DRAFTS
from vllm_hust_vspec.demo.plan import CELLS
from vllm_hust_vspec.demo.results import Results


def _shown(made: Results) -> str:
    out = io.StringIO()
    report.show(made, Console(file=out, width=150))
    return out.getvalue()


def test_the_table_shows_every_figure_of_a_cell_in_one_line() -> None:
    lines = _shown(results()).splitlines()
    row = next(line for line in lines if line.lstrip().startswith("story") and " 32 " in line)
    for figure in ("100", "110", "120", "130", "140*", "159", "4.00", "0/0/100/0/0", "1.59 (1.50..1.70)", "identical"):
        assert figure in row, f"{figure} is not in {row!r}"


@pytest.mark.parametrize("method", DRAFTS)
def test_the_title_says_which_drafts(method: str) -> None:
    made = results()
    made.host["method"] = method
    assert f"--method {method}: {DRAFTS[method]}, gamma up to 4" in _shown(made)


def test_no_row_is_cut_or_wrapped_at_its_width() -> None:
    text = _shown(results(explained=1, unexplained=1))
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.lstrip().startswith(tuple(cell.kind for cell in CELLS))]
    assert len([line for line in rows if "/0/" in line]) == len(CELLS)


def test_divergences_are_told_with_gap_and_noise_unexplained_first() -> None:
    text = _shown(results(explained=9, unexplained=1))
    assert "10 requests diverged, 1 unexplained" in text
    assert "0.250 nats" in text
    listed = [line for line in text.splitlines() if "gap " in line and "token 7" in line]
    assert "3.000 nats, UNEXPLAINED" in listed[0]
    assert "0.100 nats, within the noise" in listed[1]
    assert "1 of 10 UNEXPLAINED" in text


def test_the_summary_is_one_line_that_names_best_and_worst() -> None:
    made = results()
    made.cells[4] = cell_result(CELLS[4], adaptive=(80.0, 90.0))
    made.cells[7] = cell_result(CELLS[7], adaptive=(200.0, 220.0))
    line = report.summary(made)
    assert "\n" not in line
    assert "0.85x (story, 1 at once)" in line
    assert "2.10x (code, 8 at once)" in line
    assert "1 cell below 0.95x" in line
    assert "fixed-4, is at 1.40x" in line


def test_identical_tokens_are_said_plainly() -> None:
    assert "Every token of every request is target-only's" in _shown(results())


def test_a_failed_controller_is_not_passed_over() -> None:
    made = results()
    run = made.cells[0].runs[1]
    assert run.speculation is not None
    object.__setattr__(run.speculation, "faults", 1)
    assert "The controller failed 1 times" in _shown(made)


def test_many_divergences_are_not_all_listed() -> None:
    made = results()
    made.cells[0].judged += [divergence(CELLS[0]) for _ in range(50)]
    assert "and 42 more" in _shown(made)
