"""What a host's runner hands to its sampler, for the tests of verification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def sampling_metadata(processors: list[Any], **changes: Any) -> Any:
    """The SamplingMetadata of a plain greedy batch with these logits processors, changed as said."""
    plain: dict[str, Any] = {
        "all_greedy": True,
        "no_penalties": True,
        "max_num_logprobs": None,
        "logprob_token_ids": None,
        "allowed_token_ids_mask": None,
        "bad_words_token_ids": {},
        "thinking_budget_state_holder": None,
        "logitsprocs": SimpleNamespace(non_argmax_invariant=processors),
    }
    return SimpleNamespace(**(plain | changes))
