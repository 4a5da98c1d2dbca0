"""manage.sh: one test command, and one line for what it does not know or does not do yet."""

import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import VERSION, Checkout

from manage import LATER, TEST_ENVIRONMENT, Call, test_calls

test_calls.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("tests/unit/test_a.py", "tests/benchmarks/test_speed.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def commands(tree: Path, *arguments: str, caller: Path | None = None) -> list[list[str]]:
    calls = test_calls(tree, arguments, caller or tree)
    assert all(call.command[:3] == (f"{tree}/.venv/bin/python", "-m", "pytest") for call in calls)
    assert all(call.variables is TEST_ENVIRONMENT for call in calls)
    return [list(call.command[3:]) for call in calls]


PARALLEL = ["-n", "2", "--dist", "loadscope"]


def test_by_default_all_tests_run_in_parallel_and_then_the_benchmarks_alone(tree: Path) -> None:
    assert commands(tree) == [
        [*PARALLEL, f"{tree}/tests", f"--ignore={tree}/tests/benchmarks"],
        ["-p", "no:xdist", f"{tree}/tests/benchmarks"],
    ]


def test_no_benchmarks_no_second_run(tree: Path) -> None:
    (tree / "tests/benchmarks/test_speed.py").unlink()
    assert len(commands(tree)) == 1


def test_options_alone_are_added_to_the_default_selection(tree: Path) -> None:
    assert commands(tree, "-k", "gamma", "-x") == [
        [*PARALLEL, f"{tree}/tests", f"--ignore={tree}/tests/benchmarks", "-k", "gamma", "-x"]
    ]


@pytest.mark.parametrize("given", ["tests/unit/test_a.py", "tests/unit/test_a.py::test_x[a-b]", "test_a.py"])
def test_a_path_replaces_the_default_selection_from_any_folder(tree: Path, given: str) -> None:
    _, _, test = given.partition("::")
    wanted = f"{tree}/tests/unit/test_a.py" + (f"::{test}" if test else "")
    assert commands(tree, "-q", given, caller=tree / "tests/unit") == [[*PARALLEL, "-q", wanted]]


def test_a_caller_elsewhere_means_this_checkouts_tests(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("another")
    (elsewhere / "tests" / "unit").mkdir(parents=True)
    (elsewhere / "tests" / "unit" / "test_a.py").touch()
    assert commands(tree, "tests/unit/test_a.py", caller=elsewhere) == [[*PARALLEL, f"{tree}/tests/unit/test_a.py"]]


def test_named_benchmarks_run_without_neighbours(tree: Path) -> None:
    assert commands(tree, "tests/benchmarks") == [["-p", "no:xdist", f"{tree}/tests/benchmarks"]]


@pytest.mark.parametrize(
    "given", [["-n", "0"], ["-n4"], ["--numprocesses=4"], ["--pdb"], ["-p", "no:xdist"], ["--dist=no"]]
)
def test_the_callers_number_of_workers_wins(tree: Path, given: list[str]) -> None:
    assert "loadscope" not in commands(tree, *given)[0]


def manage(checkout: Checkout, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, checkout.root / "scripts" / "manage.py", *arguments]
    return subprocess.run(command, env=checkout.environ | environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["test", "--hots", "cpu"], "unknown argument '--hots'; pytest's own arguments stand after --"),
        (["test", "-k", "x"], "unknown argument '-k'; pytest's own arguments stand after --"),
        (["test", "--host", "gpu"], "invalid choice: 'gpu'"),
        (["test", "--host", "emulated-npu"], "not built yet"),
        (["install"], "install without --editable is not built yet"),
        (["install", "--editable", "--enable"], "unknown argument '--enable'"),
        (["install", "--editable", "--", "x"], "takes nothing after --"),
        (["--python", "/nowhere/python", "install", "--editable"], "/nowhere/python is not a Python 3.11 or newer"),
        *(([verb], f"manage.sh {verb} is not built yet") for verb in LATER),
        (["run", "--dry-run", "--", "vllm-hust-vspec", "--config", "x"], "manage.sh run is not built yet"),
    ],
)
def test_bad_or_early_input_is_one_line_and_exit_code_2(checkout: Checkout, arguments: list[str], told: str) -> None:
    done = manage(checkout, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("vspec: ")


def test_all_hosts_says_which_one_does_not_exist_yet(checkout: Checkout) -> None:
    done = manage(checkout, "--dry-run", "test", "--host", "all")
    assert done.returncode == 0
    assert done.stderr == "vspec: --host all: running cpu; emulated-npu is not built yet\n"
    assert "OMP_NUM_THREADS=1 " in done.stdout
    assert not (checkout.root / ".venv").exists()


def test_a_dry_run_can_be_pasted_into_a_shell(checkout: Checkout) -> None:
    done = manage(checkout, "test", "--dry-run", "--", "-k", "a or 'b'")
    echoed = done.stdout.replace(f"'{checkout.root}/.venv/bin/python'", "printf '<%s>'")
    pasted = subprocess.run(["bash", "-c", echoed], capture_output=True, text=True)
    assert pasted.stdout.endswith("<-k><a or 'b'>"), (echoed, pasted.stderr)


def test_a_call_quotes_its_variables() -> None:
    assert Call(("a b", "c"), {"X": "1 2"}).as_shell() == "X='1 2' 'a b' c"


def test_install_goes_into_the_python_that_is_named(checkout: Checkout) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)
    python = str(checkout.root / ".venv" / "bin" / "python")
    done = manage(checkout, "install", "--editable", "--skip-model-setup", VSPEC_PYTHON=python)
    assert (done.returncode, done.stderr) == (0, "")
    assert (checkout.site_packages / f"vllm_hust_vspec-{VERSION}.dist-info").is_dir()


def test_uninstall_tells_of_a_copy_that_it_does_not_reach(checkout: Checkout) -> None:
    # The pretended pip removes nothing, and the real Python behind it has the plugin installed.
    shown = manage(checkout, "--python", str(checkout.python), "uninstall")
    assert shown.returncode == 1
    assert "stays visible; remove it there" in shown.stderr


def test_install_without_models_says_so(checkout: Checkout) -> None:
    done = manage(checkout, "--dry-run", "--python", str(checkout.python), "install", "--editable")
    assert done.stdout == f"{checkout.python} -m pip install --editable '{checkout.root}'\n"
    assert "no drafter was set up (not built yet); name one with --draft-model" in done.stderr
