"""vLLM-Ascend's drafters draft as many tokens as the step asks for, and their KV stays whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from types import SimpleNamespace as Thing
from typing import Any

import pytest
import torch

from vllm_hust_vspec.host import ascend_gamma
from vllm_hust_vspec.host.carried_gamma import GAMMA

CONFIGURED = 4


class Captured:
    """Stands for vLLM-Ascend's wrapper of a captured graph."""


@pytest.fixture(autouse=True)
def wrapper() -> Iterator[None]:
    module = ModuleType("vllm_ascend.compilation.acl_graph")
    module.ACLGraphWrapper = Captured  # type: ignore[attr-defined]
    names = ["vllm_ascend", "vllm_ascend.compilation", "vllm_ascend.compilation.acl_graph"]
    kept = {name: sys.modules.get(name) for name in names}
    sys.modules.update(zip(names, [ModuleType(names[0]), ModuleType(names[1]), module], strict=True))
    yield
    for name, before in kept.items():
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


def drafter(*, captured: bool = False) -> Any:
    return Thing(
        num_speculative_tokens=CONFIGURED,
        speculative_config=Thing(num_speculative_tokens=CONFIGURED),
        _runnable=Captured() if captured else print,
    )


def runner(model: Any) -> Any:
    return Thing(drafter=model, num_spec_tokens=CONFIGURED)


def run_passes(model: Any) -> torch.Tensor:
    """[2, passes]: in each column the number of its pass, from 1."""
    return torch.arange(1, model.num_speculative_tokens + 1).repeat(2, 1)


def propose(host: Any, gamma: int | None, sampled: Any = ()) -> Any:
    output = Thing() if gamma is None else Thing(**{GAMMA: gamma})

    def original(asked: Any, sampled: Any, metadata: Any, output: Any, rest: str) -> Any:
        assert rest == "rest"
        return (
            run_passes(asked.drafter)
            if hasattr(asked.drafter, "num_speculative_tokens")
            else [[7] * 4 for _ in sampled]
        )

    return ascend_gamma.propose(original, host, sampled, "metadata", output, "rest")


@pytest.mark.parametrize("gamma", range(CONFIGURED + 1))
def test_release_0_23_runs_as_many_passes_and_keeps_its_matrix_wide(gamma: int) -> None:
    host = runner(drafter())
    drafts = propose(host, gamma)
    passes = max(gamma, 1)
    assert drafts.tolist() == [list(range(1, passes + 1)) + [0] * (CONFIGURED - passes)] * 2
    assert host.drafter.num_speculative_tokens == CONFIGURED


def test_a_graph_of_all_passes_runs_whole() -> None:
    assert propose(runner(drafter(captured=True)), 1).tolist() == [[1, 2, 3, 4]] * 2


def test_a_drafter_that_fails_is_left_as_configured() -> None:
    host = runner(drafter())

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ascend_gamma.propose(broken, host, [], None, Thing(**{GAMMA: 2}))
    assert host.drafter.num_speculative_tokens == CONFIGURED


def test_a_step_that_was_never_decided_is_the_hosts_own() -> None:
    host = runner(drafter())
    assert propose(host, None).shape == (2, CONFIGURED)
    given = Thing(req_ids=["a"], draft_token_ids=[[1, 2, 3, 4]])
    assert ascend_gamma.take(lambda _: given, host) is given


def test_a_look_up_is_cut_and_not_asked_for_nothing() -> None:
    host = runner(Thing())
    assert propose(host, 2, [[1], [2]]) == [[7, 7], [7, 7]]
    assert ascend_gamma.propose(None, host, [[1], [2]], None, Thing(**{GAMMA: 0})) == [[], []]


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_the_scheduler_takes_what_was_asked_for(gamma: int) -> None:
    class Taken(Thing):
        def __init__(self, req_ids: Any, draft_token_ids: Any) -> None:
            super().__init__(req_ids=req_ids, draft_token_ids=draft_token_ids)

    host = runner(drafter())
    propose(host, gamma)
    taken = ascend_gamma.take(lambda _: Taken(["a", "b"], [[1, 2, 3, 4], [5, 6, 7, 8]]), host)
    assert taken.draft_token_ids == [[1, 2, 3, 4][:gamma], [5, 6, 7, 8][:gamma]]
    assert ascend_gamma.take(lambda _: None, host) is None


@pytest.mark.parametrize(("captured", "passes"), [(False, [1, 1, 2, 3, 4]), (True, [4] * 5)])
def test_later_releases_never_go_without_a_pass_nor_over_the_width(captured: bool, passes: list[int]) -> None:
    model, ran = drafter(captured=captured), []

    def original(drafter: Any, *, num_speculative_tokens: int, other: str) -> Any:
        ran.append(num_speculative_tokens)
        return torch.ones(3, num_speculative_tokens)

    widths = [
        ascend_gamma.draft(original, model, num_speculative_tokens=gamma, other="x").shape[1] for gamma in range(5)
    ]
    assert ran == passes
    assert widths == list(range(5))
