"""Native vLLM arguments: passed on, or refused where they contradict ours."""

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.extra import merge_extra

OURS = [
    ("--port", "8000", "--port"),
    ("--generation-config", "vllm", "--generation-config"),
    ("--no-enable-prefix-caching", None, "--prefix-caching"),
    ("--compilation-config", '{"cudagraph_mode": "FULL"}', "--graph-mode"),
    ("--speculative-config", "{}", "--method"),
]


@pytest.mark.parametrize(
    "extra",
    [
        ["--seed", "3"],
        ["--trust-remote-code"],
        ["--kv-transfer-config", '{"a": 1}', "--api-key", "a", "b"],
        ["--cpu-offload-gb=2", "--seed", "-1"],
        ["--data-parallel-size", "2"],
        ["--served-model-name", "x"],
    ],
)
def test_other_arguments_pass_through_in_order(extra):
    assert merge_extra(OURS, extra) == extra


@pytest.mark.parametrize(
    "extra",
    [["--generation-config", "vllm"], ["--generation-config=vllm"], ["--generation_config", "vllm"], ["--port", "8000"],
     ["--no-enable-prefix-caching"]],
)  # fmt: skip
def test_an_argument_that_repeats_ours_is_dropped(extra):
    assert merge_extra(OURS, [*extra, "--seed", "3"]) == ["--seed", "3"]


@pytest.mark.parametrize(
    ("extra", "option"),
    [
        (["--port", "9000"], "--port"),
        (["--port=9000"], "--port"),
        (["--generation-config", "auto"], "--generation-config"),
        (["--enable-prefix-caching"], "--prefix-caching"),
        (["--speculative-config", '{"method": "ngram"}'], "--method"),
        (["--speculative_config={}x"], "--method"),
        (["--speculative-config.method", "eagle"], "--method"),
        (["-sc", "{}"], "--method"),
        (["--spec-method", "eagle"], "--method"),
        (["--spec-tokens", "4"], "--method"),
        (["--enforce-eager"], "--graph-mode"),
        (["-O3"], "--graph-mode"),
        (["-O.level=3"], "--graph-mode"),
        (["-cc", "{}"], "--graph-mode"),
        (["--compilation_config.level", "3"], "--graph-mode"),
        (["--cudagraph-capture-sizes", "1", "2"], "--graph-mode"),
        (["--async-scheduling"], "--async-scheduling"),
        (["--model", "m"], "--target-model"),
        (["--seed", "3", "--port", "1"], "--port"),
    ],
)
def test_an_argument_that_contradicts_ours_names_our_option(extra, option):
    with pytest.raises(UserError, match=f"contradicts.*{option}$"):
        merge_extra(OURS, extra)


def test_a_stray_word_is_refused():
    with pytest.raises(UserError, match="org/model after -- is not a vLLM argument"):
        merge_extra(OURS, ["org/model"])
