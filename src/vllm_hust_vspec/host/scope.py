"""Whether gamma adapts in a given server: adaptive, pinned (one line says why), inert, or a host that cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host import ascend, carried_gamma
from vllm_hust_vspec.host.gamma0.mode import gamma0_mode
from vllm_hust_vspec.host.requirements import Field, Method
from vllm_hust_vspec.settings import Settings

ADAPTIVE_METHODS = ("draft_model", "eagle", "eagle3", "ngram")
# Methods whose drafter runs a model: at gamma 0 the host still runs one shadow pass, to keep the drafter's KV whole.
MODEL_DRAFTERS = ("draft_model", "eagle", "eagle3")

# What a host must carry so that gamma can change at every step (vLLM 0.24 and later, V1 runner).
CARRIES_GAMMA = (
    Field("vllm.v1.core.sched.output:SchedulerOutput", "num_spec_tokens_to_schedule"),
    Method("vllm.v1.core.sched.scheduler:Scheduler._update_after_schedule", ("scheduler_output",)),
)


@dataclass(frozen=True, slots=True)
class Scope:
    """kind: adaptive, a controller decides; pinned, gamma stays as configured; inert, there is no speculation.
    rests: the drafter runs no pass at gamma 0, and makes up for it when speculation resumes."""

    kind: Literal["adaptive", "pinned", "inert"]
    line: str
    method: str = ""
    max_gamma: int = 0
    rests: bool = False


def scope_of(vllm_config: Any, settings: Settings) -> Scope:
    """The scope of gamma control under a server's configuration.

    Raises HostMismatch where the host cannot change gamma at all, UserError where an option contradicts the server.
    """
    spec = vllm_config.speculative_config
    if spec is None:
        return Scope("inert", "enabled, but the server has no speculative config: nothing to adapt")
    method, gamma = str(spec.method), int(spec.num_speculative_tokens or 0)
    reason = _pinned_because(vllm_config, spec, method)
    if reason is not None:
        return Scope("pinned", f"gamma stays at {gamma} ({method}): {reason}", method, gamma)
    adaptive = settings.for_server(method=method, gamma=gamma).adaptive
    _require_a_way_for_gamma()
    policy = adaptive.policy if adaptive.speculation else "fixed"
    low = gamma if policy == "fixed" else (adaptive.min_gamma or 0)
    rests = gamma0_mode(vllm_config, settings) == "catchup"
    return Scope("adaptive", f"gamma {low}..{gamma} ({method}), policy {policy}", method, gamma, rests)


def _require_a_way_for_gamma() -> None:
    """Raise HostMismatch unless gamma can reach the drafter: carried by vLLM, or brought by the plugin.

    It is brought to vLLM-Ascend's workers alone; what it needs there is checked in them, where they are imported.
    """
    lost = next(filter(None, (need.missing() for need in CARRIES_GAMMA)), None)
    if lost is None:
        return
    if ascend.present():
        lost = next(filter(None, (need.missing() for need in carried_gamma.REQUIRES)), None)
        if lost is None:
            return
    raise HostMismatch(
        f"this vLLM cannot change gamma while it serves: {lost} (vLLM 0.24 and later have it); "
        "update vLLM, or unset HUST_VSPEC_ENABLED to serve with a fixed gamma"
    )


def _pinned_because(vllm_config: Any, spec: Any, method: str) -> str | None:
    parallel = vllm_config.parallel_config
    if method not in ADAPTIVE_METHODS:
        return f"method {method} is not adaptive yet"
    if vllm_config.use_v2_model_runner:
        return "Model Runner V2 is not adaptive yet; VLLM_USE_V2_MODEL_RUNNER=0 selects the V1 runner"
    if parallel.data_parallel_size > 1:
        return "under data parallelism ranks could choose different gammas and deadlock"
    if parallel.pipeline_parallel_size > 1:
        return "pipeline parallelism is not adaptive yet"
    if any(getattr(parallel, f"{phase}_context_parallel_size", 1) > 1 for phase in ("prefill", "decode")):
        return "context parallelism is not adaptive yet"
    if getattr(spec, "num_speculative_tokens_per_batch_size", None):
        return "the speculative config has its own num_speculative_tokens_per_batch_size; remove it to let vSpec decide"
    if getattr(spec, "parallel_drafting", False):
        return "parallel drafting costs the same for every gamma"
    if getattr(vllm_config, "lora_config", None) is not None:
        return "LoRA is not adaptive yet"
    if getattr(vllm_config, "kv_transfer_config", None) is not None:
        return "KV connectors are not adaptive yet"
    if getattr(vllm_config.model_config, "enable_sleep_mode", False):
        return "sleep mode is not adaptive yet"
    return None
