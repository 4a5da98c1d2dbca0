"""Where gamma adapts, where it is pinned with one line, and where there is nothing to adapt."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.errors import HostMismatch, UserError
from vllm_hust_vspec.host import ascend, carried_gamma, scope
from vllm_hust_vspec.host.requirements import Symbol
from vllm_hust_vspec.host.scope import scope_of
from vllm_hust_vspec.settings import Settings


@pytest.fixture(autouse=True)
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that carries gamma; its real symbols are asked in the end-to-end tests."""
    monkeypatch.setattr(scope, "CARRIES_GAMMA", ())


def plain(**facts: Any) -> Any:
    """A dense text model with full attention."""
    return Thing(uses_mrope=False, get_sliding_window=lambda: None, **facts)


def config(**changes: Any) -> Any:
    """A server's configuration; a change is given as section__name=value."""
    sections: dict[str, Any] = {
        "speculative_config": Thing(method="eagle", num_speculative_tokens=4, draft_model_config=plain()),
        "parallel_config": Thing(data_parallel_size=1, pipeline_parallel_size=1),
        "model_config": plain(enable_sleep_mode=False),
        "use_v2_model_runner": False,
        "lora_config": None,
        "kv_transfer_config": None,
    }
    for path, value in changes.items():
        section, _, name = path.partition("__")
        if name:
            setattr(sections[section], name, value)
        else:
            sections[section] = value
    return Thing(**sections)


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "ngram"])
def test_the_four_methods_adapt(method: str) -> None:
    found = scope_of(config(speculative_config__method=method), Settings())
    assert (found.kind, found.method, found.max_gamma) == ("adaptive", method, 4)
    assert found.line == f"gamma 0..4 ({method}), policy online"


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "ngram"])
def test_a_draft_model_alone_rests_at_gamma_0(method: str) -> None:
    assert scope_of(config(speculative_config__method=method), Settings()).rests == (method == "draft_model")


def test_a_rest_that_cannot_be_made_up_for_is_refused_with_the_configuration() -> None:
    asking = Settings.from_environment({"HUST_VSPEC_ADAPTIVE_GAMMA0_MODE": "catchup"})
    assert scope_of(config(speculative_config__method="draft_model"), asking).rests
    with pytest.raises(UserError, match="hidden states"):
        scope_of(config(), asking)


def test_without_speculation_it_is_inert() -> None:
    assert scope_of(config(speculative_config=None), Settings()).kind == "inert"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"speculative_config__method": "suffix"}, "method suffix"),
        ({"speculative_config__method": "medusa"}, "method medusa"),
        ({"use_v2_model_runner": True}, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ({"parallel_config__data_parallel_size": 2}, "deadlock"),
        ({"parallel_config__pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"parallel_config__prefill_context_parallel_size": 2}, "context parallelism"),
        ({"parallel_config__decode_context_parallel_size": 2}, "context parallelism"),
        ({"speculative_config__num_speculative_tokens_per_batch_size": [(1, 8, 2)]}, "num_speculative_tokens_per"),
        ({"speculative_config__parallel_drafting": True}, "parallel drafting"),
        ({"lora_config": Thing()}, "LoRA"),
        ({"kv_transfer_config": Thing()}, "KV connectors"),
        ({"model_config__enable_sleep_mode": True}, "sleep mode"),
    ],
)
def test_what_is_not_adaptive_is_pinned_with_one_line(change: dict[str, Any], says: str) -> None:
    found = scope_of(config(**change), Settings())
    assert found.kind == "pinned"
    assert says in found.line
    assert "stays at 4" in found.line
    assert "\n" not in found.line


def test_a_min_gamma_above_the_servers_is_refused() -> None:
    settings = Settings.from_environment({"HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "4"})
    with pytest.raises(UserError, match=r"GAMMA=4 exceeds --gamma 2 \(num_speculative_tokens\); set it to 0\.\.2"):
        scope_of(config(speculative_config__num_speculative_tokens=2), settings)


def test_a_host_that_cannot_change_gamma_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "CARRIES_GAMMA", (Symbol("gone_module:Field"),))
    monkeypatch.setattr(ascend, "present", lambda: False)
    with pytest.raises(HostMismatch, match=r"gone_module .*vLLM 0\.24 and later"):
        scope_of(config(), Settings())


def test_gamma_is_brought_to_a_vllm_ascend_that_carries_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "CARRIES_GAMMA", (Symbol("gone_module:Field"),))
    monkeypatch.setattr(ascend, "present", lambda: True)
    monkeypatch.setattr(carried_gamma, "REQUIRES", ())
    assert scope_of(config(), Settings()).kind == "adaptive"


def test_what_bringing_it_needs_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "CARRIES_GAMMA", (Symbol("gone_module:Field"),))
    monkeypatch.setattr(ascend, "present", lambda: True)
    monkeypatch.setattr(carried_gamma, "REQUIRES", (Symbol("other_module:Thing"),))
    with pytest.raises(HostMismatch, match="other_module"):
        scope_of(config(), Settings())
