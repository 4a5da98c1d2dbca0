"""The mode in force: the option's where the server allows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host.gamma0 import mode
from vllm_hust_vspec.settings import AdaptiveSettings, Settings


def server(method: str = "draft_model", window: int | None = None, **target: bool) -> Any:
    facts = {"uses_mrope": False, "is_hybrid": False, "is_multimodal_model": False}
    drafter = SimpleNamespace(**facts, get_sliding_window=lambda: window)
    spec = SimpleNamespace(method=method, draft_model_config=drafter)
    return SimpleNamespace(speculative_config=spec, model_config=SimpleNamespace(**facts | target))


def asking(asked: str | None) -> Any:
    return SimpleNamespace(adaptive=AdaptiveSettings(gamma0_mode=asked))


def test_a_draft_model_rests_unless_told_otherwise() -> None:
    assert mode.gamma0_mode(server(), Settings.from_environment({})) == "catchup"
    assert mode.gamma0_mode(server(), asking("catchup")) == "catchup"
    assert mode.gamma0_mode(server(), asking("sync")) == "sync"


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (server("eagle"), "hidden states"),
        (server("ngram"), "no drafter with KV"),
        (server(window=512), "sliding window"),
        (server(uses_mrope=True), "images"),
        (server(is_multimodal_model=True), "images"),
        (server(is_hybrid=True), "hybrid"),
    ],
)
def test_what_cannot_be_replayed_stays_in_step(config: Any, word: str) -> None:
    assert mode.gamma0_mode(config, asking(None)) == "sync"
    with pytest.raises(UserError, match=word) as refused:
        mode.gamma0_mode(config, asking("catchup"))
    assert "HUST_VSPEC_ADAPTIVE_GAMMA0_MODE" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_not_on_vllm_ascend_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode.ascend, "present", lambda: True)
    assert mode.gamma0_mode(server(), asking(None)) == "sync"
    with pytest.raises(UserError, match="vLLM-Ascend"):
        mode.gamma0_mode(server(), asking("catchup"))
