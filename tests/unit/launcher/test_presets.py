"""The shipped configurations."""

from pathlib import Path

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import Host, make_plan
from vllm_hust_vspec.launcher.presets import PRESETS, config_file, configs_directory
from vllm_hust_vspec.settings import Settings

NPU = Host("ascend", npus=8)


def load(name: str) -> Settings:
    return Settings.load({}, configs_directory() / PRESETS[name].file, {})


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_and_switches_graphs_and_async_on(name):
    settings = load(name)
    plan = make_plan(settings, {}, (), NPU)
    assert plan.notes == ()
    assert plan.modes.asynchronous is True
    assert plan.modes.graph == settings.serve.graph_mode
    assert settings.adapts
    assert settings.adaptive.policy == "online"


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_holds_no_absolute_path(name):
    text = (configs_directory() / PRESETS[name].file).read_text()
    assert '"/' not in text
    assert "~" not in text


def test_every_config_belongs_to_a_preset():
    assert {path.name for path in configs_directory().glob("*.toml")} == {preset.file for preset in PRESETS.values()}


@pytest.mark.parametrize(
    ("name", "method", "gamma", "graph", "target", "drafter"),
    [
        ("draft", "draft", 4, "full-decode-only", "Qwen2.5-14B-Instruct", "Qwen2.5-0.5B-Instruct"),
        ("draft-adaptive", "draft", 4, "full-decode-only", "Qwen2.5-14B-Instruct", "Qwen2.5-0.5B-Instruct"),
        ("eagle", "eagle", 4, "full", "Qwen2.5-14B-Instruct", "Eagle-Qwen2.5-14B-Instruct"),
        ("eagle-relaxed", "eagle", 4, "full", "Qwen2.5-14B-Instruct", "Eagle-Qwen2.5-14B-Instruct"),
        ("qwen3", "draft", 3, "full-decode-only", "Qwen3-14B", "Qwen3-1.7B"),
    ],
)
def test_presets_hold_the_documented_values(name, method, gamma, graph, target, drafter):
    serve = load(name).serve
    assert (serve.method, serve.gamma, serve.graph_mode, serve.max_num_seqs) == (method, gamma, graph, 128)
    assert str(serve.target_model).split("/")[1] == target
    assert str(serve.draft_model).split("/")[1] == drafter


def test_the_eagle_preset_serves_the_documented_name():
    assert load("eagle").serve.served_model_name == "qwen2.5-14b-eagle-fp16"


def test_only_the_two_presets_that_say_so_are_not_lossless():
    lossy = {name for name in PRESETS if any("not lossless" in n for n in make_plan(load(name), {}, (), NPU).all_notes)}
    assert lossy == {"draft-adaptive", "eagle-relaxed"}
    assert all(PRESETS[name].summary.endswith("not lossless") for name in lossy)


def test_an_unknown_preset_lists_them_all():
    with pytest.raises(UserError) as caught:
        config_file("drat", None, {})
    assert str(caught.value) == (
        "unknown preset drat (did you mean draft?); the presets are draft, draft-adaptive, eagle, eagle-relaxed, qwen3"
    )


def test_flag_and_variable_replace_the_presets_file(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[serve]\n")
    environ = {"VSPEC_CONFIG": str(path)}
    found = config_file("draft", None, environ)
    assert found is not None
    assert (found.path, found.preset) == (path, None)
    found = config_file("draft", Path("other.toml"), environ)
    assert found is not None
    assert found.path == Path("other.toml")
    assert config_file(None, None, {}) is None
    with pytest.raises(UserError, match="unknown preset"):
        config_file("nope", None, environ)


def test_a_variable_that_names_no_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file; name an existing TOML file or unset it"):
        config_file("draft", None, {"VSPEC_CONFIG": str(tmp_path / "none")})
