"""Each host runs its own tests, in its own environment, with its own variables."""

from pathlib import Path

import pytest

from hosts import ON_CPU, ON_EMULATOR, Call, callers_environment, chosen_hosts, plan
from pip_runner import SetupError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("tests/unit/test_a.py", "tests/benchmarks/test_speed.py", "tests/e2e_npu/test_n.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def commands(tree: Path, *arguments: str, host: str = "cpu", caller: Path | None = None) -> dict[str, list[list[str]]]:
    """pytest's arguments of every call, by the environment that it runs in."""
    found: dict[str, list[list[str]]] = {}
    for chosen, calls in plan(chosen_hosts(host, {}), tree, arguments, caller or tree):
        variables = ON_CPU if chosen.name == "cpu" else ON_EMULATOR
        for call in calls:
            venv = Path(call.command[0]).parts[-3]
            assert call.command[1:5] == ("-m", "pytest", "-c", f"{tree}/pyproject.toml")
            assert variables.items() <= call.variables.items()
            found.setdefault(venv, []).append(list(call.command[5:]))
    return found


def on_cpu(tree: Path, *arguments: str, caller: Path | None = None) -> list[list[str]]:
    return commands(tree, *arguments, caller=caller)[".venv"]


PARALLEL = ["-n", "2", "--dist", "loadscope"]


def everything(tree: Path) -> list[str]:
    left_out = ("benchmarks", "npu_emulator", "e2e_npu")
    return [f"{tree}/tests", *(f"--ignore={tree}/tests/{folder}" for folder in left_out)]


def test_by_default_all_tests_run_in_parallel_and_then_the_benchmarks_alone(tree: Path) -> None:
    assert on_cpu(tree) == [
        [*PARALLEL, *everything(tree)],
        ["-p", "no:xdist", f"{tree}/tests/benchmarks"],
    ]


def test_no_benchmarks_no_second_run(tree: Path) -> None:
    (tree / "tests/benchmarks/test_speed.py").unlink()
    assert len(on_cpu(tree)) == 1


def test_options_alone_are_added_to_the_default_selection(tree: Path) -> None:
    assert on_cpu(tree, "-k", "gamma", "-x") == [[*PARALLEL, *everything(tree), "-k", "gamma", "-x"]]


@pytest.mark.parametrize("given", ["tests/unit/test_a.py", "tests/unit/test_a.py::test_x[a-b]", "test_a.py"])
def test_a_path_replaces_the_default_selection_from_any_folder(tree: Path, given: str) -> None:
    _, _, test = given.partition("::")
    wanted = f"{tree}/tests/unit/test_a.py" + (f"::{test}" if test else "")
    assert on_cpu(tree, "-q", given, caller=tree / "tests/unit") == [[*PARALLEL, "-q", wanted]]


def test_a_caller_elsewhere_means_this_checkouts_tests(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("another")
    (elsewhere / "tests" / "unit").mkdir(parents=True)
    (elsewhere / "tests" / "unit" / "test_a.py").touch()
    assert on_cpu(tree, "tests/unit/test_a.py", caller=elsewhere) == [[*PARALLEL, f"{tree}/tests/unit/test_a.py"]]


def test_named_benchmarks_run_without_neighbours(tree: Path) -> None:
    assert on_cpu(tree, "tests/benchmarks") == [["-p", "no:xdist", f"{tree}/tests/benchmarks"]]


@pytest.mark.parametrize(
    "given", [["-n", "0"], ["-n4"], ["--numprocesses=4"], ["--pdb"], ["-p", "no:xdist"], ["--dist=no"]]
)
def test_the_callers_number_of_workers_wins(tree: Path, given: list[str]) -> None:
    assert "loadscope" not in on_cpu(tree, *given)[0]


def test_the_emulated_host_runs_the_emulators_tests_and_the_engines_on_it(tree: Path) -> None:
    folders = ("npu_emulator/tests", "e2e_npu")
    wanted = [[*PARALLEL, f"{tree}/tests/{folder}", "-x"] for folder in folders]
    assert commands(tree, "-x", host="emulated-npu") == {".venv-npu": wanted}


def test_all_hosts_run_one_after_the_other(tree: Path) -> None:
    assert [(venv, len(calls)) for venv, calls in commands(tree, host="all").items()] == [
        (".venv", 2),
        (".venv-npu", 2),
    ]


def test_with_all_hosts_each_path_goes_to_the_host_that_it_is_for(tree: Path) -> None:
    unit, npu = "tests/unit/test_a.py", "tests/e2e_npu/test_n.py"
    assert commands(tree, unit, npu, "-q", host="all") == {
        ".venv": [[*PARALLEL, f"{tree}/{unit}", "-q"]],
        ".venv-npu": [[*PARALLEL, f"{tree}/{npu}", "-q"]],
    }
    assert set(commands(tree, npu, host="all")) == {".venv-npu"}


def test_the_cpu_host_refuses_tests_of_the_emulated_one(tree: Path) -> None:
    with pytest.raises(SetupError, match=r"tests/e2e_npu/test_n\.py runs on the emulated NPU; add --host emulated-npu"):
        commands(tree, "tests/e2e_npu/test_n.py")


def test_the_emulated_host_may_run_any_test_that_is_named(tree: Path) -> None:
    assert set(commands(tree, "tests/unit/test_a.py", host="emulated-npu")) == {".venv-npu"}


def test_a_checkout_of_vllm_ascend_has_an_environment_of_its_own(tree: Path) -> None:
    (host,) = chosen_hosts("emulated-npu", {"VSPEC_TEST_ASCEND_SOURCE": "/a"})
    assert host.place(tree).venv == tree / ".venv-npu-source"
    signatures = host.variables(tree)["TORCH_NPU_EMULATOR_C_ASCEND_SCHEMAS"]
    assert Path(signatures).is_relative_to(tree / ".venv-npu-source")


def test_a_testers_own_settings_do_not_reach_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "ascend")
    monkeypatch.setenv("HUST_VSPEC_GAMMA", "3")
    monkeypatch.setenv("KEPT", "1")
    kept = callers_environment()
    assert kept["KEPT"] == "1"
    assert not {"VLLM_PLUGINS", "HUST_VSPEC_GAMMA"} & set(kept)


def test_a_call_quotes_its_variables() -> None:
    assert Call(("a b", "c"), {"X": "1 2"}).as_shell() == "X='1 2' 'a b' c"
