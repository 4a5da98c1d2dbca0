"""What vLLM-Ascend asks of a plugin: its own patches come first, and its drafters' full graphs have limits."""

from __future__ import annotations

import logging
from typing import Any

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host.requirements import Method

logger = logging.getLogger("vllm.vspec")

_ADAPT = Method("vllm_ascend.utils:adapt_patch", ("is_global_patch",))


def present() -> bool:
    """Whether vLLM serves on Ascend NPUs in this process."""
    from vllm.platforms import current_platform

    return str(current_platform.device_type) == "npu"


def apply_host_patches_first() -> None:
    """Let vLLM-Ascend replace what it replaces in vLLM before vSpec looks at any of it.

    It swaps classes (the scheduler's among them) and functions in modules; a module that was imported before keeps the
    old ones. Its worker patches follow in the worker, before WorkerBase.__init__.
    """
    if not present():
        return
    lost = _ADAPT.missing()
    if lost is not None:
        raise HostMismatch(
            f"this vLLM-Ascend does not fit: {lost}; its patches must be applied before vSpec's; install a release "
            "that README.md names as tested, or unset HUST_VSPEC_ENABLED to serve without vSpec"
        )
    from vllm_ascend.utils import adapt_patch

    adapt_patch(is_global_patch=True)


def keep_draft_model_eager(vllm_config: Any) -> None:
    """Run a draft model without graphs where the target runs with full ones.

    vLLM-Ascend's full graph of a draft model does not work: one generation never creates what it replays with, the
    other pads by the wrong number of tokens a request. Both crash as soon as one is captured.
    """
    spec = vllm_config.speculative_config
    mode = vllm_config.compilation_config.cudagraph_mode
    if spec.method != "draft_model" or spec.enforce_eager or mode is None or not mode.has_full_cudagraphs():
        return
    if vllm_config.model_config.enforce_eager or not present():
        return
    spec.enforce_eager = True
    logger.warning(
        "vspec: vLLM-Ascend cannot capture a draft model in a full graph, so the drafter runs without graphs; "
        "the target keeps %s",
        mode.name,
    )


def drafts_in_one_graph(vllm_config: Any) -> bool:
    """Whether a drafter's passes are captured together, so that every step runs all of them."""
    spec, compilation = vllm_config.speculative_config, vllm_config.compilation_config
    return (
        present()
        and spec.method in ("eagle", "eagle3")
        and not spec.enforce_eager
        and not vllm_config.model_config.enforce_eager
        and compilation.cudagraph_mode.has_full_cudagraphs()
    )
