"""Every patch of vSpec. Reading this table tells what changes in the host, why, and until when."""

from __future__ import annotations

from vllm_hust_vspec.host import (
    ascend,
    ascend_draft_model,
    ascend_gamma,
    ascend_penalties,
    cpu_sampling,
    hooks,
    no_drafts,
    scheduler,
)
from vllm_hust_vspec.host.accept import verify
from vllm_hust_vspec.host.accept.rules import relaxes
from vllm_hust_vspec.host.gamma0 import vllm_drafter
from vllm_hust_vspec.host.registry import Facts, Patch, Registry
from vllm_hust_vspec.host.requirements import Attributes, Field, Method, Symbol
from vllm_hust_vspec.host.scope import scope_of


def _speculates(facts: Facts) -> bool:
    """A worker of a server with a speculative config, on the V1 runner."""
    config = facts.vllm_config
    return facts.role == "worker" and config.speculative_config is not None and not config.use_v2_model_runner


def _on_vllms_own_runner(facts: Facts) -> bool:
    """vLLM-Ascend's runner and drafters replace vLLM's, with methods of their own."""
    return _speculates(facts) and not ascend.present()


def _rests_on_vllms_own_runner(facts: Facts) -> bool:
    return (
        _on_vllms_own_runner(facts)
        and facts.vllm_config.speculative_config.method == "draft_model"
        and scope_of(facts.vllm_config, facts.settings).rests
    )


def _on_ascend(facts: Facts) -> bool:
    return _speculates(facts) and ascend.present()


def _ascend_knows_one_width(facts: Facts) -> bool:
    return _on_ascend(facts) and not ascend_gamma.drafter_takes_width()


def _ascend_takes_a_width(facts: Facts) -> bool:
    return _on_ascend(facts) and ascend_gamma.drafter_takes_width()


def _ascend_drafts_by_model(facts: Facts) -> bool:
    return _on_ascend(facts) and facts.vllm_config.speculative_config.method == "draft_model"


def _ascend_penalises_placeholders(facts: Facts) -> bool:
    return _on_ascend(facts) and bool(facts.vllm_config.scheduler_config.async_scheduling)


def _relaxes_on_vllms_own_runner(facts: Facts) -> bool:
    return _on_vllms_own_runner(facts) and relaxes(facts.settings)


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
        when=_on_vllms_own_runner,
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
        when=_on_vllms_own_runner,
        requires=(Method(no_drafts.NGRAM, ("num_speculative_tokens", "sampled_token_ids")),),
        until="vLLM's ngram drafter returns at once when no token is asked for",
    ),
    Patch(
        name="resting-drafter",
        target=vllm_drafter.PROPOSE,
        reason="at gamma 0 vLLM runs a pass of the draft model to keep its KV whole: switched off, it still costs; "
        "one replay when speculation resumes makes up for passes that were skipped",
        replace=vllm_drafter.propose,
        when=_rests_on_vllms_own_runner,
        requires=(
            Method(vllm_drafter.PROPOSE, vllm_drafter.PARAMETERS),
            Attributes("vllm.v1.worker.gpu_model_runner:GPUModelRunner", vllm_drafter.OF_RUNNER),
            *(Field(vllm_drafter.METADATA, name) for name in vllm_drafter.OF_METADATA),
        ),
        until="vLLM lets a draft model rest and makes its KV whole when it resumes",
    ),
    Patch(
        name="resting-drafter-near-the-end",
        target=vllm_drafter.FITS,
        reason="one request near the longest length makes vLLM skip the drafter for the whole batch, whose KV then has "
        "holes; what is skipped is noted like a rest",
        replace=vllm_drafter.input_fits,
        when=_rests_on_vllms_own_runner,
        requires=(Method(vllm_drafter.FITS, ("common_attn_metadata",)),),
        until="vLLM lets a draft model rest and makes its KV whole when it resumes",
    ),
    Patch(
        name="ascend-draft-width",
        target=ascend_gamma.PROPOSE,
        reason="vLLM-Ascend 0.23 drafts as many tokens as configured at every step; the drafter's passes follow the "
        "step's gamma, and at gamma 0 one pass keeps its KV whole",
        replace=ascend_gamma.propose,
        when=_ascend_knows_one_width,
        requires=(
            Method(ascend_gamma.PROPOSE, ("valid_sampled_token_ids", "sampling_metadata", "scheduler_output")),
            Symbol("vllm_ascend.compilation.acl_graph:ACLGraphWrapper"),
            Attributes("vllm_ascend.worker.model_runner_v1:NPUModelRunner", ("drafter", "num_spec_tokens")),
            Attributes(ascend_gamma.PROPOSER, ("num_speculative_tokens", "_runnable")),
        ),
        until="support of vLLM-Ascend 0.23 ends; later vLLM carries gamma",
    ),
    Patch(
        name="ascend-take-drafts",
        target=ascend_gamma.TAKE,
        reason="synchronous scheduling on vLLM-Ascend 0.23 takes whole rows of the draft matrix, which is wider than "
        "what was drafted",
        replace=ascend_gamma.take,
        when=_ascend_knows_one_width,
        requires=(
            Field("vllm.v1.outputs:DraftTokenIds", "req_ids"),
            Field("vllm.v1.outputs:DraftTokenIds", "draft_token_ids"),
        ),
        until="support of vLLM-Ascend 0.23 ends; later vLLM carries gamma",
    ),
    Patch(
        name="ascend-draft-ends",
        target=ascend_gamma.DRAFT,
        reason="vLLM-Ascend's drafter runs no pass at gamma 0, which leaves holes in its KV and costs acceptance ever "
        "after, and a graph of all its passes drafts more tokens than the step asks for",
        replace=ascend_gamma.draft,
        when=_ascend_takes_a_width,
        requires=(
            Method(ascend_gamma.DRAFT, ("num_speculative_tokens",)),
            Symbol("vllm_ascend.compilation.acl_graph:ACLGraphWrapper"),
            Attributes(ascend_gamma.PROPOSER, ("speculative_config", "_runnable")),
        ),
        until="vLLM-Ascend keeps the drafter's KV whole at zero tokens and cuts a graph's drafts to the step's width",
    ),
    Patch(
        name="ascend-penalised-drafts",
        target=ascend_penalties.SAMPLE,
        reason="vLLM-Ascend's runner computes penalties with placeholders where drafts should stand under asynchronous "
        "scheduling: a request with a repetition penalty gets other tokens than without speculation",
        replace=ascend_penalties.sample,
        when=_ascend_penalises_placeholders,
        requires=(
            Method(ascend_penalties.SAMPLE, ("logits", "spec_decode_metadata")),
            Method("vllm.v1.worker.gpu_model_runner:GPUModelRunner._get_draft_token_ids_cpu"),
            Method("vllm.v1.worker.gpu_input_batch:InputBatch.update_async_spec_token_ids", ("draft_token_ids",)),
            Attributes("vllm_ascend.worker.model_runner_v1:NPUModelRunner", ("_draft_token_req_ids",)),
        ),
        until="vLLM-Ascend's runner puts real drafts in before it samples, as vLLM's does",
    ),
    Patch(
        name="ascend-draft-model-rows",
        target=ascend_draft_model.FIRST_PASS,
        reason="beside a full graph of the target, vLLM-Ascend hands a draft model a block table with the rows of "
        "padding requests: any batch that the graph pads ends the engine",
        replace=ascend_draft_model.set_inputs_first_pass,
        when=_ascend_drafts_by_model,
        requires=(
            Method(ascend_draft_model.FIRST_PASS, ("cad",)),
            Attributes(ascend_gamma.PROPOSER, ("needs_extra_input_slots",)),
            Field("vllm.v1.attention.backend:CommonAttentionMetadata", "block_table_tensor"),
        ),
        until="vLLM-Ascend's unpadded metadata has an unpadded block table",
    ),
    Patch(
        name="ascend-verifier",
        target=verify.ASCEND_RUNNER,
        reason="verification by an option's rule needs to know how many tokens each request has generated, which only "
        "the runner knows",
        replace=verify.equip_ascend,
        when=_on_ascend,
        requires=(
            Attributes("vllm_ascend.worker.model_runner_v1:NPUModelRunner", verify.OF_RUNNER),
            Attributes("vllm.v1.worker.gpu_input_batch:InputBatch", ("num_prompt_tokens",)),
        ),
        until="vLLM-Ascend's rejection sampler has hooks for an acceptance rule",
    ),
    Patch(
        name="ascend-verification",
        target=verify.ASCEND_SAMPLER,
        reason="vLLM-Ascend copies the logits to fp32 up to three times to verify greedy drafts, and without Triton "
        "waits for the device several times in each step; relaxed acceptance has no place in it",
        replace=verify.forward,
        when=_on_ascend,
        requires=(Method(verify.ASCEND_SAMPLER, verify.PARAMETERS), *verify.BATCH),
        until="vLLM-Ascend verifies greedy drafts on the logits as they are, and takes an acceptance rule",
    ),
    Patch(
        name="verifier",
        target=verify.RUNNER,
        reason="verification by an option's rule needs to know how many tokens each request has generated, which only "
        "the runner knows",
        replace=verify.equip,
        when=_relaxes_on_vllms_own_runner,
        requires=(
            Attributes("vllm.v1.worker.gpu_model_runner:GPUModelRunner", verify.OF_RUNNER),
            Attributes("vllm.v1.worker.gpu_input_batch:InputBatch", ("num_prompt_tokens",)),
        ),
        until="vLLM's rejection sampler has hooks for an acceptance rule",
    ),
    Patch(
        name="relaxed-verification",
        target=verify.SAMPLER,
        reason="vLLM's rejection sampler accepts the target's best token alone; an option asks for more",
        replace=verify.forward,
        when=_relaxes_on_vllms_own_runner,
        requires=(Method(verify.SAMPLER, verify.PARAMETERS), *verify.BATCH),
        until="vLLM's rejection sampler takes an acceptance rule",
    ),
)

REGISTRY = Registry(PATCHES)
