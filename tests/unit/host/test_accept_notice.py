"""A server that relaxes acceptance says so once, in its front end; one that cannot ends there."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.host import hooks
from vllm_hust_vspec.host.scope import Scope
from vllm_hust_vspec.settings import Settings


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """start(variable=value): what the front end of an EAGLE server warns of under these variables."""

    def started(**variables: str) -> list[str]:
        found, warned = Settings.from_environment(variables), list[str]()
        monkeypatch.setattr(hooks, "settings", lambda: found)
        monkeypatch.setattr(hooks, "scope_of", lambda config, options: Scope("pinned", "gamma stays at 4"))
        monkeypatch.setattr(hooks, "_logged", {})
        monkeypatch.setattr(hooks, "_log_ledger", lambda role, line: hooks._logged.update({role: (line, "")}))
        monkeypatch.setattr(hooks, "logger", Thing(warning=lambda text, *given: warned.append(text % given)))
        config = Thing(
            model_config=Thing(get_vocab_size=lambda: 1000),
            speculative_config=Thing(method="eagle", num_speculative_tokens=4),
            parallel_config=Thing(),
            use_v2_model_runner=False,
            additional_config={},
        )
        for _ in range(2):  # an engine in this process may make its configuration again
            hooks.configure_front_end(lambda config: None, config)
        return warned

    return started


def test_a_relaxed_server_says_once_that_it_is_not_lossless(start: Any) -> None:
    (line,) = start(HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK="2")
    assert line.startswith("vspec: not lossless: a draft among the target's best 2 tokens is accepted")


def test_a_strict_server_has_nothing_to_say(start: Any) -> None:
    assert start() == []


def test_a_rule_that_cannot_be_kept_ends_the_front_end(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        start(HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK="1001")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("vspec: HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK=1001 exceeds")
    assert said.count("\n") == 1
