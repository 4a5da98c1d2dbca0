"""The sections and `Settings` as other parts use them."""

import subprocess
import sys

import pydantic
import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import OPTIONS, AdaptiveSettings, ServeSettings, Settings


def test_a_section_built_directly_reads_no_environment(monkeypatch):
    monkeypatch.setenv("HUST_VSPEC_ADAPTIVE_MIN_GAMMA", "3")
    monkeypatch.setenv("MIN_GAMMA", "3")
    monkeypatch.setenv("POLICY", "fixed")
    assert AdaptiveSettings().min_gamma is None
    assert AdaptiveSettings(policy="online", min_gamma=0).model_dump(exclude_unset=True) == {
        "policy": "online",
        "min_gamma": 0,
    }


def test_settings_built_directly_read_no_environment(monkeypatch):
    monkeypatch.setenv("SERVE", '{"gamma": 9}')
    monkeypatch.setenv("HUST_VSPEC_GAMMA", "9")
    assert Settings().serve.gamma == 4
    assert Settings(serve=ServeSettings(gamma=2)).serve.gamma == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"policy": "lucky"},
        {"min_gamma": -1},
        {"ewma_weight": 0},
        {"ewma_weight": float("nan")},
        {"hysteresis": True},
        {"min_gama": 1},
        {"control_interval": 0},
        {"online_exploration": -1},
    ],
)
def test_a_section_validates_what_it_is_given(bad):
    with pytest.raises(pydantic.ValidationError):
        AdaptiveSettings(**bad)


def test_sections_are_frozen():
    with pytest.raises(pydantic.ValidationError):
        AdaptiveSettings().policy = "fixed"


def test_choices_of_the_controller_are_none_until_given():
    own = (
        "control_interval",
        "hysteresis",
        "min_gamma",
        "max_gamma_step",
        "online_window",
        "online_exploration",
        "online_warmup_samples",
        "online_warmup_return",
    )
    assert {name: getattr(AdaptiveSettings(), name) for name in own} == dict.fromkeys(own)


def test_every_option_has_a_flag_and_a_help_of_its_own():
    flags = [spec.flag for spec in OPTIONS.values()]
    assert len(set(flags)) == len(flags)
    for spec in OPTIONS.values():
        assert spec.help.endswith("."), f"{spec.flag}: help is no sentence"


def test_every_published_option_is_declared():
    published = """
        method target-model draft-model served-model-name ngram-min ngram-max gamma max-num-seqs max-num-batched-tokens
        max-model-len dtype graph-mode capture-policy generation-config async-scheduling prefix-caching chunked-prefill
        device port host gpu-memory-utilization tensor-parallel-size draft-tensor-parallel-size steering-socket
        adaptive-speculation adaptive-policy adaptive-profile adaptive-ewma-weight adaptive-control-interval
        adaptive-hysteresis adaptive-min-gamma adaptive-min-observations adaptive-max-gamma-step
        adaptive-latency-calibration adaptive-latency-ewma-weight adaptive-gamma0-mode adaptive-online-window
        adaptive-online-exploration adaptive-online-warmup-samples adaptive-online-warmup-return adaptive-refill-batch
        adaptive-entropy-stop adaptive-entropy-topk adaptive-entropy-threshold adaptive-entropy-scale
        adaptive-full-graph adaptive-async adaptive-trace adaptive-memory adaptive-state-file
        shared-tokenizer-padding merged-full merged-full-max-batch
        confidence-accept-margin confidence-accept-from-position confidence-accept-after-tokens
        confidence-protected-token-ids eagle-draft-active-vocab-size eagle-draft-active-vocab-ids
        eagle-target-active-vocab-ids eagle-draft-lm-head-quantization eagle-relaxed-accept-topk
        eagle-relaxed-accept-after-tokens eagle-spec-metadata-cache eagle-uniform-state-kernel graph-event-ordering
        eagle-tree-width eagle-zero-draft-kv-first-step eagle-draft-trace eagle-draft-io-trace-dir
        eagle-target-hidden-trace-dir eagle-target-argmax-trace-path
    """
    assert {spec.flag for spec in OPTIONS.values()} == {f"--{name}" for name in published.split()}


def test_draft_model_has_no_variable_of_its_own():
    assert OPTIONS["draft_model"].variable is None
    assert Settings.load({"draft_model": "d"}, None, {}).to_environment() == {}


def test_the_environment_of_vllms_processes_gives_the_same_options_back():
    flags = {
        "method": "draft", "gamma": "6", "adaptive_min_gamma": "2", "adaptive_hysteresis": "0.25",
        "adaptive_async": True, "prefix_caching": "on", "steering_socket": "/run/v.sock",
        "confidence_accept_margin": "1.5", "confidence_protected_token_ids": "7,8", "adaptive_online_window": "40",
    }  # fmt: skip
    there = Settings.load(flags, None, {})
    back = Settings.from_environment(there.to_environment())
    assert back.model_dump() == there.model_dump()
    assert set(there.to_environment()) == {f"HUST_VSPEC_{key.upper()}" for key in flags}


def test_sections_built_directly_travel_too():
    adaptive = AdaptiveSettings(min_gamma=0, trace="t", refill_batch=8)
    there = Settings(serve=ServeSettings(method="ngram"), adaptive=adaptive)
    assert there.to_environment() == {
        "HUST_VSPEC_METHOD": "ngram",
        "HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "0",
        "HUST_VSPEC_ADAPTIVE_TRACE": "t",
        "HUST_VSPEC_ADAPTIVE_REFILL_BATCH": "8",
    }
    assert there.unbuilt() == ["--adaptive-refill-batch 8"]


def test_a_selected_profile_policy_travels_by_its_profile():
    there = Settings.load({"adaptive_profile": "p.json"}, None, {})
    assert there.to_environment() == {"HUST_VSPEC_ADAPTIVE_PROFILE": "p.json"}
    assert Settings.from_environment(there.to_environment()).adaptive.policy == "profile"


def test_an_overridden_legacy_variable_does_not_come_back():
    environ = {"HUST_SPECSLO_GAMMA": "3"}
    there = Settings.load({"gamma": "2"}, None, environ)
    assert Settings.from_environment({**environ, **there.to_environment()}).serve.gamma == 2


def test_processes_leave_gamma_to_the_server_where_none_is_given():
    settings = Settings.from_environment({"HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "6"})
    assert settings.for_server(method="draft_model", gamma=8).serve.gamma == 8
    with pytest.raises(UserError) as caught:
        settings.for_server(method="draft_model", gamma=4)
    assert str(caught.value) == (
        "HUST_VSPEC_ADAPTIVE_MIN_GAMMA=6 exceeds --gamma 4 (num_speculative_tokens); set it to 0..4"
    )


def test_the_servers_method_decides_what_has_effect():
    settings = Settings.from_environment({"HUST_VSPEC_ADAPTIVE_ASYNC": "1"})
    assert settings.for_server(method="eagle", gamma=2).adaptive.async_
    with pytest.raises(UserError, match="HUST_VSPEC_ADAPTIVE_ASYNC=1 has no effect with --method ngram"):
        settings.for_server(method="ngram", gamma=2)


@pytest.mark.parametrize(
    ("flags", "adapts"),
    [({}, True), ({"adaptive_policy": "fixed"}, False), ({"adaptive_speculation": False}, False)],
)
def test_adapts_says_whether_gamma_changes(flags, adapts):
    assert Settings.load(flags, None, {}).adapts is adapts


def test_settings_import_neither_torch_nor_vllm():
    code = (
        "import sys, vllm_hust_vspec.settings, vllm_hust_vspec.launcher, vllm_hust_vspec.cli;"
        "print([name for name in ('torch', 'vllm', 'transformers', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
