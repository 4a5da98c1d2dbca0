"""The tokens that only strict verification may accept: those that end or structure an answer, and those named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def protected_tokens(model_config: Any, named: Iterable[int]) -> list[int]:
    """End-of-sequence tokens of model and generation config, the tokenizer's special tokens, and the named ones.

    A server without a tokenizer (skip_tokenizer_init) knows no special tokens but those that end a sequence.
    """
    tokens = set(named)
    tokens.update(_ids(getattr(model_config.hf_text_config, "eos_token_id", None)))
    tokens.update(_ids(model_config.try_get_generation_config().get("eos_token_id")))
    if not model_config.skip_tokenizer_init:
        tokens.update(_specials(_tokenizer(model_config)))
    return sorted(tokens)


def _ids(value: Any) -> list[int]:
    """A config's token id, list of ids, or nothing, as a list."""
    if value is None:
        return []
    return [int(token) for token in value] if isinstance(value, (list, tuple)) else [int(value)]


def _specials(tokenizer: Any) -> Iterator[int]:
    yield from getattr(tokenizer, "all_special_ids", ())
    for token, added in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if added.special:
            yield token


def _tokenizer(model_config: Any) -> Any:
    from vllm.tokenizers import cached_tokenizer_from_config

    return cached_tokenizer_from_config(model_config)
