"""Which drafts a server accepts, from its options; what contradicts the server is refused before a model loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import OPTIONS, Settings

TOPK = "eagle_relaxed_accept_topk"
MARGIN = "confidence_accept_margin"
PROTECTED = "confidence_protected_token_ids"


@dataclass(frozen=True, slots=True)
class Strict:
    """Only the target's best token is accepted: greedy output stays what it is without speculation."""


@dataclass(frozen=True, slots=True)
class AmongBest:
    """Any of the target's best `k` tokens is accepted, once a request has generated `after_tokens`."""

    k: int
    after_tokens: int


@dataclass(frozen=True, slots=True)
class WithinMargin:
    """A token at most `margin` below the target's best logit is accepted, but for `protected` and early ones.

    from_position counts a step's drafts from 0; protected holds the tokens that the option names.
    """

    margin: float
    from_position: int
    after_tokens: int
    protected: tuple[int, ...]


Rule = Strict | AmongBest | WithinMargin


def relaxes(settings: Settings) -> bool:
    """Whether an option relaxes acceptance."""
    return any(not OPTIONS[key].is_off(settings.value(key)) for key in (TOPK, MARGIN))


def rule_for(vllm_config: Any, settings: Settings) -> Rule:
    """The rule of a server. Raises UserError where an option asks for what the server cannot do."""
    spec = vllm_config.speculative_config
    if spec is None or not relaxes(settings):
        return Strict()
    settings.for_server(method=str(spec.method), gamma=int(spec.num_speculative_tokens or 0))
    vocabulary = int(vllm_config.model_config.get_vocab_size())
    draft, eagle = settings.draft, settings.eagle
    key = TOPK if draft.confidence_accept_margin is None else MARGIN
    for obstacle in _obstacles(vllm_config):
        raise UserError(f"{_named(settings, key)} has no effect {obstacle}, or leave it out")
    if draft.confidence_accept_margin is None:
        if eagle.relaxed_accept_topk > vocabulary:
            raise UserError(
                f"{_named(settings, TOPK)} exceeds the target's vocabulary of {vocabulary} tokens; "
                f"set it to 1..{vocabulary}"
            )
        return AmongBest(eagle.relaxed_accept_topk, eagle.relaxed_accept_after_tokens)
    unknown = [token for token in draft.confidence_protected_token_ids if token >= vocabulary]
    if unknown:
        raise UserError(
            f"{_named(settings, PROTECTED)} names token {unknown[0]}, and the target's vocabulary ends at "
            f"{vocabulary - 1}; leave it out"
        )
    return WithinMargin(
        draft.confidence_accept_margin,
        draft.confidence_accept_from_position,
        draft.confidence_accept_after_tokens,
        draft.confidence_protected_token_ids,
    )


def notice(rule: Rule) -> str | None:
    """What a person should know about a rule that is not lossless, on one line."""
    match rule:
        case Strict():
            return None
        case AmongBest(k, after):
            what = f"a draft among the target's best {k} tokens is accepted"
        case WithinMargin(margin, position, after, _):
            what = f"a draft at most {margin:g} below the target's best logit is accepted"
            if position:
                what += f", from draft position {position} on"
    if after:
        what += f", after {after} generated tokens"
    return f"not lossless: {what}; greedy answers differ from those without speculation"


def _obstacles(vllm_config: Any) -> Iterator[str]:
    """What keeps a relaxed rule from working here, with the fix."""
    parallel = vllm_config.parallel_config
    if vllm_config.use_v2_model_runner:
        yield "on Model Runner V2; select the V1 runner with VLLM_USE_V2_MODEL_RUNNER=0"
    if any(getattr(parallel, f"{phase}_context_parallel_size", 1) > 1 for phase in ("prefill", "decode")):
        yield "under context parallelism; serve without it"
    if reduces_samples(vllm_config):
        yield "with enable_reduce_sample, where no rank has all logits; switch that off in --additional-config"


def reduces_samples(vllm_config: Any) -> bool:
    """Whether vLLM-Ascend leaves each rank its own part of the logits."""
    additional = getattr(vllm_config, "additional_config", None) or {}
    return isinstance(additional, dict) and bool(additional.get("enable_reduce_sample"))


def _named(settings: Settings, key: str) -> str:
    return settings.choices().named(key)
