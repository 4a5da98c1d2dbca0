"""Where there are no drafts, neither the rejection sampler nor the drafter is asked."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.host.no_drafts import propose_ngram, sample


@pytest.mark.parametrize(
    ("metadata", "passed_on"), [(None, False), (Thing(max_spec_len=0), False), (Thing(max_spec_len=1), True)]
)
def test_only_steps_with_drafts_reach_the_rejection_sampler(metadata: Any, passed_on: bool) -> None:
    got = sample(lambda runner, logits, given: (runner, logits, given), "runner", "logits", metadata)
    assert got == ("runner", "logits", metadata if passed_on else None)


def test_ngram_looks_nothing_up_at_gamma_0() -> None:
    def host(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    assert propose_ngram(host, "drafter", 0, [[1], [], [2, 3]], "tokens") == [[], [], []]
    assert propose_ngram(host, "drafter", 2, [[1]], "tokens", slots=None) == (
        ("drafter", 2, [[1]], "tokens"),
        {"slots": None},
    )
