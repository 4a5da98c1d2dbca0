"""What vLLM-Ascend asks of a plugin is asked for by capability, and says what it does."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host import ascend


@pytest.fixture(autouse=True)
def on_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ascend, "present", lambda: True)


def utils(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    module = ModuleType("vllm_ascend.utils")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, "vllm_ascend", ModuleType("vllm_ascend"))
    monkeypatch.setitem(sys.modules, "vllm_ascend.utils", module)


def test_the_hosts_own_patches_are_applied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def adapt_patch(is_global_patch: bool = False) -> None:
        calls.append(is_global_patch)

    utils(monkeypatch, adapt_patch=adapt_patch)
    ascend.apply_host_patches_first()
    assert calls == [True]
    monkeypatch.setattr(ascend, "present", lambda: False)
    ascend.apply_host_patches_first()
    assert calls == [True]


def test_a_host_without_them_is_refused_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    utils(monkeypatch)
    with pytest.raises(HostMismatch, match=r"vllm_ascend\.utils:adapt_patch does not exist") as error:
        ascend.apply_host_patches_first()
    assert "\n" not in str(error.value)


def config(method: str = "draft_model", *, full: bool = True, eager: bool = False, drafter_eager: bool = False) -> Any:
    return Thing(
        speculative_config=Thing(method=method, enforce_eager=drafter_eager),
        compilation_config=Thing(cudagraph_mode=Thing(name="SOME_MODE", has_full_cudagraphs=lambda: full)),
        model_config=Thing(enforce_eager=eager),
    )


def test_a_draft_model_beside_full_graphs_runs_without_them_and_a_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = config()
    with caplog.at_level(logging.WARNING, "vllm.vspec"):
        ascend.keep_draft_model_eager(found)
        ascend.keep_draft_model_eager(found)
    assert found.speculative_config.enforce_eager
    (record,) = caplog.records
    assert "the drafter runs without graphs; the target keeps SOME_MODE" in record.getMessage()


@pytest.mark.parametrize("found", [config("eagle"), config(full=False), config(eager=True), config("ngram")])
def test_other_drafters_stay_as_configured(found: Any, caplog: pytest.LogCaptureFixture) -> None:
    ascend.keep_draft_model_eager(found)
    assert not found.speculative_config.enforce_eager
    assert not caplog.records


@pytest.mark.parametrize(
    ("found", "captured"),
    [
        (config("eagle"), True),
        (config("eagle3"), True),
        (config("draft_model"), False),
        (config("eagle", full=False), False),
        (config("eagle", eager=True), False),
        (config("eagle", drafter_eager=True), False),
    ],
)
def test_an_eagle_head_beside_full_graphs_runs_all_its_passes(found: Any, captured: bool) -> None:
    assert ascend.drafts_in_one_graph(found) is captured
