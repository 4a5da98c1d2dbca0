"""vSpec's verification takes only batches that it may, and knows where each request and draft stands."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import numpy as np
import pytest
import torch
from batches import sampling_metadata

from vllm_hust_vspec.host.accept.rules import AmongBest, Rule, Strict, WithinMargin
from vllm_hust_vspec.host.accept.verify import Verifier, forward

PROMPTS = (5, 3, 9, 4, 6)


def batch(drafts: list[list[int]]) -> Any:
    """The metadata that vLLM's runner makes of these drafts: each request's rows of logits, its bonus row last."""
    counts = [len(request) for request in drafts]
    ends, sampled = np.cumsum(counts), np.cumsum([count + 1 for count in counts])
    rows = [start + i for start, count in zip(sampled - counts - 1, counts, strict=True) for i in range(count)]
    return Thing(
        draft_token_ids=torch.tensor([token for request in drafts for token in request], dtype=torch.int32),
        num_draft_tokens=counts,
        cu_num_draft_tokens=torch.tensor(ends, dtype=torch.int32),
        cu_num_sampled_tokens=torch.tensor(sampled, dtype=torch.int32),
        target_logits_indices=torch.tensor(rows, dtype=torch.int32),
        bonus_logits_indices=torch.tensor(sampled - 1, dtype=torch.int32),
        logits_indices=torch.arange(int(sampled[-1]), dtype=torch.int32),
        max_spec_len=max(counts),
    )


def greedy(**changes: Any) -> Any:
    return sampling_metadata([], **changes)


def ours(rule: Rule, metadata: Any, logits: torch.Tensor, runner: Any = None, protected: Any = None) -> Any:
    def hosts_own(*_: Any) -> Any:
        raise AssertionError("left to the host")

    sampler = Thing(vspec=Verifier(rule, runner, protected))
    output = forward(hosts_own, sampler, metadata, None, logits, greedy())
    assert sampler.vspec.verified == 1
    assert output.logprobs_tensors is None
    return output.sampled_token_ids


def test_strictly_a_request_gets_the_targets_tokens() -> None:
    best = torch.tensor([2, 3, 4, 5, 1, 6])  # of each row: two drafts and the bonus row, then none, then one
    logits = torch.nn.functional.one_hot(best, 7).to(torch.bfloat16)
    assert ours(Strict(), batch([[2, 3], [], [1]]), logits).tolist() == [[2, 3, 4], [5, -1, -1], [1, 6, -1]]
    assert ours(Strict(), batch([[2, 0], [], [-1]]), logits).tolist() == [[2, 3, -1], [5, -1, -1], [1, -1, -1]]


@pytest.mark.parametrize("change", [{"all_greedy": False}, {"no_penalties": False}, {"max_num_logprobs": 2}])
def test_what_is_not_plain_greedy_goes_to_the_host_untouched(change: dict[str, Any]) -> None:
    given_to: list[Any] = []
    sampler = Thing(vspec=Verifier(AmongBest(3, 0), None))
    arguments = ("metadata", "draft_probs", "logits", greedy(**change))
    assert forward(lambda *given: given_to.append(given) or "theirs", sampler, *arguments) == "theirs"
    assert given_to == [(sampler, *arguments)]
    assert (sampler.vspec.verified, sampler.vspec.left) == (0, 1)


@pytest.mark.parametrize(
    "sampler", [Thing(), Thing(vspec=None), Thing(vspec=Verifier(Strict(), 0), synthetic_mode=True)]
)
def test_a_sampler_without_a_verifier_or_with_made_up_acceptance_is_left_alone(sampler: Any) -> None:
    assert forward(lambda *given: "theirs", sampler, "metadata", None, "logits", greedy()) == "theirs"


def runner_at(generated: list[int], drafts: list[list[int]]) -> Any:
    """A runner whose requests have generated so many tokens, the last of which and the drafts are in this step."""
    positions = [
        prompt + done - 1 + i
        for prompt, done, request in zip(PROMPTS, generated, drafts, strict=False)
        for i in range(len(request) + 1)
    ]
    return Thing(positions=torch.tensor(positions), input_batch=Thing(num_prompt_tokens=np.array(PROMPTS)))


def test_a_rule_begins_at_the_token_that_it_names() -> None:
    """Token 1 is second best everywhere; the third request has 6 tokens before its first draft, 7 before its next."""
    drafts = [[1, 1], [], [1, 1, 1]]
    logits = torch.tensor([3.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]).repeat(8, 1)
    runner = runner_at([4, 2, 6], drafts)
    assert ours(AmongBest(2, 5), batch(drafts), logits, runner).tolist() == [
        [0, -1, -1, -1],
        [0, -1, -1, -1],
        [1, 1, 1, 0],
    ]
    assert ours(AmongBest(2, 7), batch(drafts), logits, runner).tolist()[2] == [0, -1, -1, -1]
    assert ours(AmongBest(2, 4), batch(drafts), logits, runner).tolist()[0] == [1, 1, 0, -1]
    assert ours(AmongBest(2, 0), batch(drafts), logits).tolist()[0] == [1, 1, 0, -1]


def test_a_margin_begins_at_its_position_and_spares_protected_tokens() -> None:
    drafts = [[0, 1, 2], [0, 2, 1]]
    logits = torch.tensor([3.0, 2.0, 2.5, 0.0, 0.0, 0.0, 0.0]).repeat(8, 1)
    none = torch.tensor([], dtype=torch.int64)
    assert ours(WithinMargin(1.0, 0, 0, ()), batch(drafts), logits, protected=none).tolist() == [
        [0, 1, 2, 0],
        [0, 2, 1, 0],
    ]
    assert ours(WithinMargin(0.5, 1, 0, ()), batch(drafts), logits, protected=none).tolist() == [
        [0, 0, -1, -1],
        [0, 2, 0, -1],
    ]
    assert ours(WithinMargin(1.0, 2, 0, ()), batch(drafts), logits, protected=none).tolist() == [[0, 0, -1, -1]] * 2
    spared = torch.tensor([2])
    assert ours(WithinMargin(1.0, 0, 0, ()), batch(drafts), logits, protected=spared).tolist() == [
        [0, 1, 0, -1],
        [0, 0, -1, -1],
    ]
