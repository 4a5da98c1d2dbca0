"""Every patch of vSpec. Reading this table tells what changes in the host, why, and until when."""

from __future__ import annotations

from vllm_hust_vspec.host import cpu_sampling, hooks, no_drafts, scheduler
from vllm_hust_vspec.host.registry import Facts, Patch, Registry
from vllm_hust_vspec.host.requirements import Attributes, Field, Method


def _speculates(facts: Facts) -> bool:
    """A worker of a server with a speculative config, on the V1 runner."""
    config = facts.vllm_config
    return facts.role == "worker" and config.speculative_config is not None and not config.use_v2_model_runner


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
        when=lambda facts: _speculates(facts) and cpu_sampling.expand_is_broken(),
        requires=(Method(cpu_sampling.EXPAND, ("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to")),),
        until="vLLM's CPU expand kernel keeps float operands",
    ),
    Patch(
        name="sample-without-drafts",
        target=no_drafts.SAMPLE,
        reason="vLLM's V1 runner (0.32) sends steps without drafts through the rejection sampler: gamma 0 would cost "
        "more than no speculation, and on the CPU backend a top-k request ends the engine there",
        replace=no_drafts.sample,
        when=lambda facts: _speculates(facts),
        requires=(
            Method(no_drafts.SAMPLE, ("logits", "spec_decode_metadata")),
            Field("vllm.v1.spec_decode.metadata:SpecDecodeMetadata", "num_draft_tokens"),
            Attributes("vllm.v1.spec_decode.metadata:SpecDecodeMetadata", ("max_spec_len",)),
        ),
        until="vLLM samples steps without drafts as if there were no speculation",
    ),
    Patch(
        name="ngram-asked-for-nothing",
        target=no_drafts.NGRAM,
        reason="vLLM's ngram drafter prepares and calls its compiled look-up also when no token is asked for",
        replace=no_drafts.propose_ngram,
        when=lambda facts: _speculates(facts),
        requires=(Method(no_drafts.NGRAM, ("num_speculative_tokens", "sampled_token_ids")),),
        until="vLLM's ngram drafter returns at once when no token is asked for",
    ),
)

REGISTRY = Registry(PATCHES)
