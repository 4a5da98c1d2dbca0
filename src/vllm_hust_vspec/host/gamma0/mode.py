"""Which gamma-0 mode a server runs with: the option's where the server allows it, else its own choice."""

from __future__ import annotations

from typing import Any, Literal

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host import ascend
from vllm_hust_vspec.settings import Settings

Mode = Literal["sync", "catchup"]


def gamma0_mode(vllm_config: Any, settings: Settings) -> Mode:
    """catchup for a draft model where its KV can be replayed, unless the option says otherwise; else sync.

    Raises UserError where the option asks for catchup and the server cannot have it.
    """
    asked = settings.adaptive.gamma0_mode
    if asked == "sync":
        return "sync"
    reason = _no_catchup(vllm_config)
    if reason is None:
        return "catchup"
    if asked is not None:
        raise UserError(
            f"--adaptive-gamma0-mode (HUST_VSPEC_ADAPTIVE_GAMMA0_MODE) is {asked}, which this server cannot have: "
            f"{reason}; set it to sync, or leave it out"
        )
    return "sync"


def _no_catchup(vllm_config: Any) -> str | None:
    """Why a resting drafter's KV could not be made whole again; None where it can."""
    spec, target = vllm_config.speculative_config, vllm_config.model_config
    if str(spec.method) == "ngram":
        return "method ngram has no drafter with KV of its own"
    if str(spec.method) != "draft_model":
        return f"method {spec.method} drafts from the target's hidden states, which are not kept"
    if ascend.present():
        return "it is not built for vLLM-Ascend yet"
    drafter = spec.draft_model_config
    if target.uses_mrope or drafter.uses_mrope or getattr(target, "is_multimodal_model", False):
        return "prompts with images are not replayed"
    if getattr(target, "is_hybrid", False) or getattr(drafter, "is_hybrid", False):
        return "a hybrid model keeps state that is not in KV blocks"
    if drafter.get_sliding_window() is not None:
        return "the drafter has a sliding window, whose old blocks are given away"
    return None
