"""Verification of plain greedy batches in place of the host's rejection sampler.

vLLM-Ascend's sampler copies the logits to fp32 up to three times before it takes the best token of each row, and
without Triton waits for the device several times in a step. The best token needs neither: it is the same in every
dtype, and which drafts equal it can be told on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm_hust_vspec.host import hooks
from vllm_hust_vspec.host.accept.plain import plain_greedy
from vllm_hust_vspec.host.accept.protected import protected_tokens
from vllm_hust_vspec.host.accept.rules import AmongBest, Rule, Strict, WithinMargin, reduces_samples, rule_for
from vllm_hust_vspec.host.requirements import Attributes, Field

ASCEND_SAMPLER = "vllm_ascend.sample.rejection_sampler:AscendRejectionSampler.forward"
ASCEND_RUNNER = "vllm_ascend.worker.model_runner_v1:NPUModelRunner._set_up_drafter"
SAMPLER = "vllm.v1.sample.rejection_sampler:RejectionSampler.forward"
RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner.__init__"

_DRAFTS = "vllm.v1.spec_decode.metadata:SpecDecodeMetadata"
_SAMPLING = "vllm.v1.sample.metadata:SamplingMetadata"
_PROCESSORS = "vllm.v1.sample.logits_processor"
PARAMETERS = ("metadata", "draft_probs", "logits", "sampling_metadata")
OF_RUNNER = ("rejection_sampler", "input_batch", "positions", "vllm_config", "model_config", "device")
# What verification reads of a batch and gives back.
BATCH = (
    Field(_DRAFTS, "draft_token_ids"),
    Field(_DRAFTS, "num_draft_tokens"),
    Field(_DRAFTS, "cu_num_draft_tokens"),
    Field(_DRAFTS, "target_logits_indices"),
    Field(_DRAFTS, "bonus_logits_indices"),
    Field(_DRAFTS, "logits_indices"),
    Attributes(_DRAFTS, ("max_spec_len",)),
    Field(_SAMPLING, "all_greedy"),
    Field(_SAMPLING, "no_penalties"),
    Field(_SAMPLING, "max_num_logprobs"),
    Field(_SAMPLING, "logprob_token_ids"),
    Field(_SAMPLING, "allowed_token_ids_mask"),
    Field(_SAMPLING, "bad_words_token_ids"),
    Field(_SAMPLING, "thinking_budget_state_holder"),
    Field(_SAMPLING, "logitsprocs"),
    Attributes(f"{_PROCESSORS}:LogitsProcessors", ("non_argmax_invariant",)),
    Attributes(f"{_PROCESSORS}:MinTokensLogitsProcessor", ("min_toks",)),
    Attributes(f"{_PROCESSORS}:LogitBiasLogitsProcessor", ("biases",)),
    Field("vllm.v1.outputs:SamplerOutput", "sampled_token_ids"),
    Field("vllm.v1.outputs:SamplerOutput", "logprobs_tensors"),
)


@dataclass(slots=True)
class Verifier:
    """A sampler's rule, and the runner that knows how far each request is.

    verified: steps that were verified here; left: steps that were left to the host's own sampler.
    """

    rule: Rule
    runner: Any
    protected: Any = None
    verified: int = field(default=0, init=False)
    left: int = field(default=0, init=False)


def equip_ascend(original: Any, runner: Any) -> None:
    """Give vLLM-Ascend's sampler a verifier, unless each rank has a part of the logits only."""
    original(runner)
    if not reduces_samples(runner.vllm_config):
        _equip(runner, rule_for(runner.vllm_config, hooks.settings()))


def equip(original: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
    """Give vLLM's sampler a verifier where an option relaxes acceptance; strictly it verifies by itself."""
    original(runner, *args, **kwargs)
    rule = rule_for(runner.vllm_config, hooks.settings())
    if not isinstance(rule, Strict):
        _equip(runner, rule)


def forward(original: Any, sampler: Any, metadata: Any, draft_probs: Any, logits: Any, sampling_metadata: Any) -> Any:
    """The tokens of a plain greedy batch by the server's rule; the host's own verification of any other.

    logits: [num_tokens + batch_size, vocab_size]. Returns the host's SamplerOutput, tokens int32
    [batch_size, max_spec_len + 1].
    """
    verifier = getattr(sampler, "vspec", None)
    if verifier is None:
        return original(sampler, metadata, draft_probs, logits, sampling_metadata)
    if getattr(sampler, "synthetic_mode", False) or not plain_greedy(sampling_metadata):
        verifier.left += 1
        return original(sampler, metadata, draft_probs, logits, sampling_metadata)
    from vllm.v1.outputs import SamplerOutput

    verifier.verified += 1
    return SamplerOutput(sampled_token_ids=verify(verifier, metadata, logits), logprobs_tensors=None)


def verify(verifier: Verifier, metadata: Any, logits: Any) -> Any:
    """What each request commits. metadata: a SpecDecodeMetadata. Returns int32 [batch_size, max_spec_len + 1]."""
    from vllm_hust_vspec.ops.verify import committed_tokens

    best = logits.argmax(dim=-1)
    rows = metadata.target_logits_indices
    drafts, target = metadata.draft_token_ids, best[rows]
    return committed_tokens(
        drafts,
        _accepted(verifier, metadata, logits, rows, target),
        target,
        best[metadata.bonus_logits_indices],
        metadata.cu_num_draft_tokens,
        metadata.max_spec_len,
    )


def _accepted(verifier: Verifier, metadata: Any, logits: Any, rows: Any, target: Any) -> Any:
    from vllm_hust_vspec.ops import accept
    from vllm_hust_vspec.ops.verify import draft_positions, owners

    drafts, ends = metadata.draft_token_ids, metadata.cu_num_draft_tokens
    match verifier.rule:
        case Strict():
            return accept.accept_best(drafts, target)
        case AmongBest(k, after_tokens):
            relaxed = _after(verifier.runner, metadata, rows, owners(ends, drafts.shape[0]), after_tokens)
            return accept.accept_among_best(logits, rows, drafts, target, k, relaxed)
        case WithinMargin(margin, from_position, after_tokens, _):
            owner = owners(ends, drafts.shape[0])
            relaxed = _after(verifier.runner, metadata, rows, owner, after_tokens)
            relaxed = relaxed & (draft_positions(ends, owner) >= from_position)
            return accept.accept_within_margin(logits, rows, drafts, target, margin, relaxed, verifier.protected)


def _after(runner: Any, metadata: Any, rows: Any, owner: Any, after_tokens: int) -> Any:
    """Whether at least `after_tokens` generated tokens precede each draft. Returns bool [T].

    Positions are right on the device, where asynchronous scheduling has corrected them; the host's counts are ahead.
    """
    import torch

    if after_tokens == 0:
        return torch.ones_like(owner, dtype=torch.bool)
    lengths = torch.tensor(
        runner.input_batch.num_prompt_tokens[: len(metadata.num_draft_tokens)].tolist(),
        dtype=torch.int64,
        pin_memory=owner.device.type != "cpu",
    ).to(owner.device, non_blocking=True)
    before = runner.positions[metadata.logits_indices[rows]] + 1
    return before - lengths[owner] >= after_tokens


def _equip(runner: Any, rule: Rule) -> None:
    import torch

    sampler = getattr(runner, "rejection_sampler", None)
    if sampler is None:
        return  # no drafts are verified here: no speculation, or not the last pipeline rank
    protected = None
    if isinstance(rule, WithinMargin):
        protected = torch.tensor(protected_tokens(runner.model_config, rule.protected), device=runner.device)
    sampler.vspec = Verifier(rule, runner, protected)
