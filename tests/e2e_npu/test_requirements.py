"""A vLLM-Ascend that lacks something is refused with one line, before anything of it is touched."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host.patches import PATCHES
from vllm_hust_vspec.host.registry import Facts, Patch, Registry
from vllm_hust_vspec.host.requirements import resolve
from vllm_hust_vspec.settings import Settings

_RUNNER = "vllm_ascend.worker.model_runner_v1:NPUModelRunner"
_PROPOSER = "vllm_ascend.spec_decode.llm_base_proposer:AscendSpecDecodeBaseProposer"
# What a later vLLM-Ascend might drop.
GONE = (
    f"{_RUNNER}.propose_draft_token_ids",
    f"{_PROPOSER}._propose",
    "vllm_ascend.compilation.acl_graph:ACLGraphWrapper",
    "vllm.v1.outputs:DraftTokenIds",
)


@pytest.fixture(scope="module")
def ours() -> list[Patch]:
    """The patches that a worker of this host applies, chosen by the host's capabilities."""
    from vllm_ascend.utils import adapt_patch

    adapt_patch(is_global_patch=True)
    adapt_patch(is_global_patch=False)
    config = Thing(
        speculative_config=Thing(method="draft_model"),
        use_v2_model_runner=False,
        scheduler_config=Thing(async_scheduling=True),
    )
    return Registry(PATCHES).select("configured", Facts(Settings(), "worker", config))


def test_one_way_for_gamma_is_chosen(ours: list[Patch]) -> None:
    names = {patch.name for patch in ours}
    brought, carried = {"ascend-draft-width", "ascend-take-drafts"}, {"ascend-draft-ends"}
    assert (names & (brought | carried)) in (brought, carried)
    assert {"ascend-penalised-drafts", "ascend-draft-model-rows"} <= names
    assert not names & {"cpu-expand-kernel", "sample-without-drafts", "ngram-asked-for-nothing"}


def test_this_host_has_all_that_they_need(ours: list[Patch]) -> None:
    assert Registry(ours).problems(ours) == []


@pytest.mark.parametrize("path", GONE)
def test_what_is_gone_is_named_and_nothing_is_applied(
    path: str, ours: list[Patch], monkeypatch: pytest.MonkeyPatch
) -> None:
    concerned = [p for p in ours if path == p.target or path in {getattr(need, "path", "") for need in p.requires}]
    if not concerned:
        pytest.skip("not used on this generation")
    untouched = [p for p in ours if p not in concerned]
    before: list[Any] = [resolve(p.target)[0] for p in untouched]
    owner, _, name = path.rpartition("." if "." in path.partition(":")[2] else ":")
    monkeypatch.delattr(resolve(owner)[0], name)
    with pytest.raises(HostMismatch) as error:
        Registry(ours).apply(ours)
    assert f"host does not fit: {path} " in str(error.value)
    assert "\n" not in str(error.value)
    assert [resolve(p.target)[0] for p in untouched] == before
