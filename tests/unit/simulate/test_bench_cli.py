"""What the command line promises: one clear line for bad input, one table, one JSON, one picture."""

import json

import pytest
from small_cells import cell, workload

from vllm_hust_vspec.bench import cli, simulation
from vllm_hust_vspec.errors import UserError, run
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.workload import Phase


@pytest.fixture
def small_grid(monkeypatch):
    nature = HOSTS["npu-eagle"].nature("high")
    moving = workload(phases=[Phase(size, nature, 15) for size in (1, 8)])
    monkeypatch.setattr(simulation, "grid", lambda size: [cell(), cell("moving", moving), cell("shift", moving)])
    monkeypatch.setattr(simulation, "MEMORY_STEPS", 200)


def test_simulate_prints_the_table_and_writes_what_it_is_asked_for(small_grid, tmp_path, capsys):
    figures, picture = tmp_path / "sim.json", tmp_path / "sim.png"
    cli.bench(["simulate", "--workers", "1", "--seeds", "2", "--json", str(figures), "--plot", str(picture)])
    printed = capsys.readouterr().out
    assert "stationary, 0..4" in printed
    assert "throughput rule" in printed
    assert "PASS" in printed or "MISS" in printed
    data = json.loads(figures.read_text())
    assert data["schema_version"] == 1
    assert [one["cls"] for one in data["cells"]] == ["stationary", "moving", "shift"] * 2
    assert {gate["passed"] for gate in data["gates"]} <= {True, False}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["sim.json", "sim.png"], "no partial files"


def test_max_gamma_and_only_are_obeyed(small_grid, tmp_path):
    figures = tmp_path / "sim.json"
    cli.bench(["simulate", "--workers", "1", "--max-gamma", "2", "--only", "moving", "--json", str(figures)])
    (one,) = json.loads(figures.read_text())["cells"]
    assert one["cls"] == "moving"
    assert "gamma 2" in one["speeds"]
    assert "gamma 3" not in one["speeds"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--seeds", "0"], "--seeds 0"),
        (["--workers", "0"], "--workers 0"),
        (["--max-gamma", "99"], "--max-gamma 99"),
        (["--grid", "huge"], "huge"),
        (["--only", "still"], "--only still"),
        (["--json", "/nowhere/sim.json"], "/nowhere"),
        (["--json", "x.out", "--plot", "x.out"], "choose two files"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments, names):
    with pytest.raises(UserError, match=names) as refused:
        cli.bench(["simulate", *arguments])
    assert "\n" not in str(refused.value)


def test_other_verbs_are_not_built_yet(capsys):
    with pytest.raises(SystemExit) as ended:
        run(lambda: cli.bench(["compare"]))
    assert ended.value.code == 2
    assert "vllm-hust-vspec-bench compare is not built yet" in capsys.readouterr().err
