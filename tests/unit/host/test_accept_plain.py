"""A batch is plain greedy decoding only when nothing but the logits decides its tokens."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest
from batches import sampling_metadata

from vllm_hust_vspec.host.accept.plain import plain_greedy


class MinTokensLogitsProcessor:
    def __init__(self, **held: Any) -> None:
        self.min_toks = held


class LogitBiasLogitsProcessor:
    def __init__(self, **held: Any) -> None:
        self.biases = held


class SomebodysProcessor:
    pass


def sampling(**changes: Any) -> Any:
    processors = changes.pop("processors", [MinTokensLogitsProcessor(), LogitBiasLogitsProcessor()])
    return sampling_metadata(processors, **changes)


def test_plain_greedy_is_recognised() -> None:
    assert plain_greedy(sampling())
    assert plain_greedy(sampling(processors=[]))
    assert plain_greedy(sampling(thinking_budget_state_holder=Thing(has_tracked_requests=lambda: False)))


@pytest.mark.parametrize(
    "change",
    [
        {"all_greedy": False},
        {"no_penalties": False},
        {"max_num_logprobs": 0},
        {"max_num_logprobs": 5},
        {"logprob_token_ids": {0: [1]}},
        {"allowed_token_ids_mask": object()},
        {"bad_words_token_ids": {0: [[1]]}},
        {"thinking_budget_state_holder": Thing(has_tracked_requests=lambda: True)},
        {"processors": [MinTokensLogitsProcessor(first=3)]},
        {"processors": [MinTokensLogitsProcessor(), LogitBiasLogitsProcessor(second={1: 2.0})]},
        {"processors": [SomebodysProcessor()]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_in_the_batch_leaves_it_to_the_host(change: dict[str, Any]) -> None:
    assert not plain_greedy(sampling(**change))
