"""Gamma in vLLM-Ascend's V1 model runner: the workers' side.

Release 0.23 knows one width. The runner keeps one matrix of drafts, as wide as configured, and several readers rely on
that: the asynchronous input preparation by its row stride, the copy to the host by its buffer. So the drafter runs
fewer passes and the matrix is filled up: its surplus columns are never scheduled.

Later ones hand the step's width to the drafter. What is left to mend there are its two ends: no pass at all at gamma 0,
which leaves holes in the drafter's KV, and a graph of all passes, which drafts more than was asked for.
"""

from __future__ import annotations

from typing import Any

from vllm_hust_vspec.host.carried_gamma import GAMMA
from vllm_hust_vspec.host.requirements import Method

_RUNNER = "vllm_ascend.worker.model_runner_v1:NPUModelRunner"
PROPOSE = f"{_RUNNER}.propose_draft_token_ids"
PROPOSER = "vllm_ascend.spec_decode.llm_base_proposer:AscendSpecDecodeBaseProposer"
DRAFT = f"{PROPOSER}._propose"
TAKE = f"{_RUNNER}.take_draft_token_ids"
_DRAFTED = "vspec_drafted"


def propose(
    original: Any, runner: Any, valid_sampled_token_ids: Any, sampling_metadata: Any, scheduler_output: Any, *rest: Any
) -> Any:
    """Draft as many tokens as the step asks for.

    Returns the host's kinds of drafts: int [num_reqs, num_spec_tokens] from a model drafter, of which the first gamma
    columns count; from a look-up, a list of at most gamma tokens for each request.
    """
    gamma = getattr(scheduler_output, GAMMA, None)
    if gamma is None:
        return original(runner, valid_sampled_token_ids, sampling_metadata, scheduler_output, *rest)
    setattr(runner, _DRAFTED, gamma)
    drafter = runner.drafter
    configured = getattr(drafter, "num_speculative_tokens", None)
    if configured is None:
        if gamma == 0:
            return [[] for _ in valid_sampled_token_ids]
        drafts = original(runner, valid_sampled_token_ids, sampling_metadata, scheduler_output, *rest)
        return [tokens[:gamma] for tokens in drafts]
    # At gamma 0 one pass still runs: without it the drafter's KV would have holes where tokens were accepted.
    drafter.num_speculative_tokens = configured if passes_are_captured(drafter) else max(gamma, 1)
    try:
        drafts = original(runner, valid_sampled_token_ids, sampling_metadata, scheduler_output, *rest)
    finally:
        drafter.num_speculative_tokens = configured
    return _filled_up(drafts, runner.num_spec_tokens)


def drafter_takes_width() -> bool:
    """Whether this vLLM-Ascend tells its drafter at each step how many tokens to draft."""
    return Method(DRAFT, ("num_speculative_tokens",)).missing() is None


def draft(original: Any, drafter: Any, *args: Any, num_speculative_tokens: int, **kwargs: Any) -> Any:
    """Draft as asked, but never without a pass, and never more than asked. Returns int [num_reqs, asked]."""
    passes = max(num_speculative_tokens, 1)
    if passes_are_captured(drafter):
        passes = drafter.speculative_config.num_speculative_tokens
    drafts = original(drafter, *args, num_speculative_tokens=passes, **kwargs)
    return drafts[:, :num_speculative_tokens]


def passes_are_captured(drafter: Any) -> bool:
    """Whether the drafter's passes were captured together, in one graph: it replays all of them or none."""
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper

    return isinstance(drafter._runnable, ACLGraphWrapper)


def take(original: Any, runner: Any) -> Any:
    """Hand the scheduler the tokens that were asked for, without what fills the matrix up."""
    drafts = original(runner)
    gamma = getattr(runner, _DRAFTED, None)
    if drafts is None or gamma is None:
        return drafts
    return type(drafts)(drafts.req_ids, [tokens[:gamma] for tokens in drafts.draft_token_ids])


def _filled_up(drafts: Any, width: int) -> Any:
    """drafts: int [num_reqs, n], n <= width. Returns int [num_reqs, width], zeros after column n."""
    import torch

    missing = width - drafts.shape[1]
    return torch.nn.functional.pad(drafts, (0, missing)) if missing else drafts
