"""A long command is shown in one line, and so is its failure."""

import io
import os
import sys
from pathlib import Path

import pytest

from pip_runner import NoMatchError, Progress, SetupError, clean_environment, explain, run_logged

LOG = Path("setup.log")


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError': Connection refused\n"
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            "cannot reach the package index while installing torch; check the network",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "no room left on the disk while installing torch; free some and run the same command again",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: 1.0)\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            "pip finds no torch==2.13.0 for this Python and machine; try another Python (3.11 to 3.14)",
        ),
        ("Collecting torch\nERROR: HTTP error 403 while getting it\nnote: odd", "torch failed: ERROR: HTTP error 403"),
        (
            "csrc/a.cpp:3:7: error: 'x' was not declared\ncsrc/a.cpp:9:1: error: another\n"
            "error: command '/usr/bin/g++' failed with exit code 1\nERROR: Could not build wheels for torch",
            "torch failed: csrc/a.cpp:3:7: error: 'x' was not declared (log",
        ),
        ("", "torch failed: it printed nothing"),
    ],
)
def test_each_failure_is_one_line_with_its_cause_and_the_log(printed: str, told: str) -> None:
    line = str(explain("torch", printed.splitlines(), LOG))
    assert told in line
    assert line.endswith("(log: setup.log)")
    assert "\n" not in line


def test_an_outage_is_not_taken_for_a_missing_build() -> None:
    outage = [
        "ReadTimeoutError: Read timed out.",
        "ERROR: No matching distribution found for x==1 (from versions: none)",
    ]
    assert not isinstance(explain("x", outage, LOG), NoMatchError)
    assert isinstance(explain("x", outage[1:], LOG), NoMatchError)


def test_a_missing_build_is_known_under_a_constraints_file_too() -> None:
    told = [
        "ERROR: Cannot install x==1 because these package versions have conflicting dependencies.",
        "ERROR: Resolution",
    ]
    assert isinstance(explain("x", told, LOG), NoMatchError)


def run(tmp_path: Path, code: str, **options: object) -> tuple[bool, str]:
    log = tmp_path / "log"
    done = run_logged(
        [sys.executable, "-c", code],
        stage="it",
        log=log,
        progress=Progress(io.StringIO()),
        env=dict(os.environ),
        **options,  # type: ignore[arg-type]
    )
    return done, log.read_text()


def test_the_whole_output_is_in_the_log_and_none_of_it_on_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done, log = run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    assert done
    assert {"out", "err"} <= set(log.splitlines())
    assert capfd.readouterr() == ("", "")


def test_a_failure_names_the_last_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="installing it failed: ERROR: second"):
        run(tmp_path, "print('ERROR: first'); print('ERROR: second'); print('note'); raise SystemExit(1)")


def test_a_command_is_stopped_at_the_line_that_says_so(tmp_path: Path) -> None:
    code = "import time; print('Downloading x.whl (900 MB)', flush=True); time.sleep(60)"
    done, _ = run(tmp_path, code, stop_when=lambda line: "Downloading" in line)
    assert not done


def test_a_silent_stage_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    clock = iter((100.0, 100.0, 110.0, 131.0, 135.0, 162.0, 170.0))  # begin twice, four updates, end
    monkeypatch.setattr("pip_runner.time.monotonic", lambda: next(clock))
    progress.begin("  [1/2] torch")
    for _ in range(4):
        progress.update("Downloading torch")
    progress.end()
    assert stream.getvalue().splitlines() == [
        "  [1/2] torch … 31 s so far: Downloading torch",
        "  [1/2] torch … 62 s so far: Downloading torch",
        "  [1/2] torch: 70.0 s",
    ]


def test_a_clean_environment_activates_the_venv_and_drops_what_would_mix() -> None:
    given = {"PATH": "/usr/bin", "PYTHONPATH": "/x", "PYTHONHOME": "/x", "PIP_PREFIX": "/x", "HTTPS_PROXY": "http://p"}
    env = clean_environment(given, Path("/c/.venv"))
    assert env == {"PATH": "/c/.venv/bin:/usr/bin", "HTTPS_PROXY": "http://p", "VIRTUAL_ENV": "/c/.venv"}
