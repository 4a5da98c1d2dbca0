"""Whether a batch is plain greedy decoding: then the best token of each row of logits is all that sampling asks."""

from __future__ import annotations

from typing import Any

# Processors that change the best token, with what they hold for the requests that use them: empty, they do nothing.
_IDLE_WHEN_EMPTY = {"MinTokensLogitsProcessor": "min_toks", "LogitBiasLogitsProcessor": "biases"}


def plain_greedy(sampling: Any) -> bool:
    """Whether nothing but the logits decides the tokens of this batch, and nothing but tokens is asked for.

    sampling: the host's SamplingMetadata. False as soon as one request samples, or has penalties, logprobs, allowed or
    bad words, a bias, a minimum length or a thinking budget. A grammar needs no mention: it has masked the logits.
    """
    return (
        sampling.all_greedy
        and sampling.no_penalties
        and sampling.max_num_logprobs is None
        and not sampling.logprob_token_ids
        and sampling.allowed_token_ids_mask is None
        and not sampling.bad_words_token_ids
        and not _has_budget(sampling.thinking_budget_state_holder)
        and all(_idle(processor) for processor in sampling.logitsprocs.non_argmax_invariant)
    )


def _has_budget(holder: Any) -> bool:
    return holder is not None and bool(holder.has_tracked_requests())


def _idle(processor: Any) -> bool:
    """A processor that is not known may do anything."""
    held = _IDLE_WHEN_EMPTY.get(type(processor).__name__)
    return held is not None and not getattr(processor, held)
