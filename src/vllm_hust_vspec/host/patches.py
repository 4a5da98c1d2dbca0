"""Every patch of vSpec. Reading this table tells what changes in the host, why, and until when."""

from __future__ import annotations

from vllm_hust_vspec.host import cpu_sampling, hooks, scheduler
from vllm_hust_vspec.host.registry import Patch, Registry
from vllm_hust_vspec.host.requirements import Attributes, Method

PATCHES = (
    Patch(
        name="configure-front-end",
        stage="register",
        target="vllm.config.vllm:VllmConfig.__post_init__",
        reason="the first moment at which any process has the whole configuration: an option that contradicts it must "
        "end the server before it starts another process",
        replace=hooks.configure_front_end,
        requires=(Attributes("vllm.config.vllm:VllmConfig", ("model_config", "speculative_config")),),
        until="vLLM calls general plugins with the configuration",
    ),
    Patch(
        name="configure-engine",
        stage="register",
        target="vllm.v1.executor.abstract:Executor.__init__",
        reason="the first call of an engine process that has the whole configuration and runs after plugins are "
        "loaded; a mismatch must end the engine before a model loads",
        replace=hooks.configure_engine,
        requires=(Method("vllm.v1.executor.abstract:Executor.__init__", ("vllm_config",)),),
        until="vLLM calls general plugins with the configuration",
    ),
    Patch(
        name="configure-worker",
        stage="register",
        target="vllm.v1.worker.worker_base:WorkerBase.__init__",
        reason="the first call of a worker process that has the whole configuration; a platform's own patches are in "
        "place by then",
        replace=hooks.configure_worker,
        requires=(Method("vllm.v1.worker.worker_base:WorkerBase.__init__", ("vllm_config",)),),
        until="vLLM calls general plugins with the configuration",
    ),
    Patch(
        name="adaptive-scheduler",
        stage="register",
        target="vllm.config.scheduler:SchedulerConfig.get_scheduler_cls",
        reason="gamma is decided in the scheduler, whichever class the host resolves to; a class of ours extends it "
        "and no method of the host's own class is touched",
        replace=hooks.extend_scheduler,
        requires=(Method("vllm.config.scheduler:SchedulerConfig.get_scheduler_cls"), *scheduler.REQUIRES),
        until="vLLM offers a hook for the number of speculative tokens",
    ),
    Patch(
        name="piecewise-graphs",
        stage="register",
        target="vllm.config.vllm:VllmConfig._maybe_override_dynamic_sd_cudagraph_mode",
        reason="vLLM captures full graphs of one width on its V1 runner and turns them to PIECEWISE itself only when "
        "it knows that gamma varies",
        replace=hooks.prefer_piecewise,
        when=hooks.has_dynamic_graph_rule,
        requires=(Attributes("vllm.config.vllm:VllmConfig", ("compilation_config", "speculative_config")),),
        until="vLLM's V1 runner captures full graphs for every width, or is gone",
    ),
    Patch(
        name="cpu-expand-kernel",
        target=cpu_sampling.EXPAND,
        reason="one sampled row makes a whole speculative batch garbage on vLLM's CPU backend (0.23 to 0.32)",
        replace=cpu_sampling.expand,
        when=lambda facts: facts.role == "worker" and cpu_sampling.expand_is_broken(),
        requires=(Method(cpu_sampling.EXPAND, ("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to")),),
        until="vLLM's CPU expand kernel keeps float operands",
    ),
    Patch(
        name="cpu-constrain-nothing",
        target=cpu_sampling.CONSTRAIN,
        reason="a top-k request ends the engine on vLLM's CPU backend (0.32) at the first step without drafts, which "
        "every prefill and every step at gamma 0 is",
        replace=cpu_sampling.constrain,
        when=lambda facts: facts.role == "worker" and cpu_sampling.constrain_is_broken(),
        requires=(Method(cpu_sampling.CONSTRAIN, ("logits", "cu_num_draft_tokens", "sampling_metadata")),),
        until="vLLM's CPU top-k accepts an empty batch",
    ),
)

REGISTRY = Registry(PATCHES)
