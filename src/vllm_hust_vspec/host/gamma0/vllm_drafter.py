"""A resting draft model in vLLM's V1 runner.

At gamma 0 vLLM still runs one pass of the drafter, to keep its KV whole. A drafter that is off should cost nothing:
here the pass is skipped, what it would have computed is noted, and one replay makes up for it when speculation resumes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm_hust_vspec.host.gamma0.drafter_kv import Batch, DrafterKV, Replay

PROPOSE = "vllm.v1.spec_decode.draft_model:DraftModelProposer.propose"
FITS = "vllm.v1.worker.gpu_model_runner:GPUModelRunner._input_fits_in_drafter"
METADATA = "vllm.v1.attention.backend:CommonAttentionMetadata"
PARAMETERS = ("num_speculative_tokens", "target_token_ids", "target_positions", "common_attn_metadata")
OF_METADATA = (
    "query_start_loc",
    "query_start_loc_cpu",
    "seq_lens",
    "num_reqs",
    "num_actual_tokens",
    "max_query_len",
    "max_seq_len",
    "block_table_tensor",
    "slot_mapping",
)
OF_RUNNER = ("input_batch", "discard_request_mask", "input_ids")


def propose(
    original: Any,
    drafter: Any,
    *,
    num_speculative_tokens: int,
    target_token_ids: Any,
    target_positions: Any,
    common_attn_metadata: Any,
    **rest: Any,
) -> Any:
    """Draft as many tokens as the step asks for: none without a pass, others after a replay where KV is missing.

    Returns int64 [num_reqs, num_speculative_tokens].
    """
    import torch

    kv, runner, cad = drafter.vspec_kv, drafter.vspec_runner, common_attn_metadata
    requests = runner.input_batch.req_ids
    count = len(requests)
    if not runner.discard_request_mask.np[:count].all():
        # Steps in which nobody samples ask for no drafts either, and leave the drafter as it was.
        kv.resting = num_speculative_tokens == 0
    slots = cad.slot_mapping[: len(target_token_ids)]
    if kv.resting:
        kv.rest(target_token_ids, slots)
        return torch.empty(cad.batch_size(), 0, dtype=torch.int64, device=target_token_ids.device)

    def run(replay: Replay) -> None:
        original(
            drafter,
            **rest
            | {"next_token_ids": replay.following, "token_indices_to_sample": None, "num_rejected_tokens_gpu": None},
            num_speculative_tokens=0,
            target_token_ids=replay.tokens,
            target_positions=replay.positions,
            common_attn_metadata=_metadata(cad, replay),
        )

    kv.resume(
        Batch(
            requests=requests,
            tokens=target_token_ids,
            slots=slots,
            starts=target_positions[cad.query_start_loc[:count].long()],
            blocks=cad.block_table_tensor[:count],
            # an upper bound, and under asynchronous scheduling beyond the table's last column
            longest=min(cad.max_seq_len, cad.block_table_tensor.shape[1] * drafter.block_size),
        ),
        run,
    )
    return original(
        drafter,
        num_speculative_tokens=num_speculative_tokens,
        target_token_ids=target_token_ids,
        target_positions=target_positions,
        common_attn_metadata=cad,
        **rest,
    )


def input_fits(original: Any, runner: Any, common_attn_metadata: Any) -> bool:
    """Whether the drafter may run. Near the longest length it may not, for the whole batch: it lacks that step then.

    Every step asks this before it drafts, so here the drafter is also equipped with what `propose` needs.
    """
    from vllm.v1.spec_decode.draft_model import DraftModelProposer

    fits: bool = original(runner, common_attn_metadata)
    if not isinstance(runner.drafter, DraftModelProposer):
        return fits  # another engine in this process
    kv = _kv(runner, runner.drafter)
    if not fits and common_attn_metadata is not None:
        count = common_attn_metadata.num_actual_tokens
        kv.rest(runner.input_ids.gpu[:count], common_attn_metadata.slot_mapping[:count])
    return fits


def _kv(runner: Any, drafter: Any) -> DrafterKV:
    found: DrafterKV | None = getattr(drafter, "vspec_kv", None)
    if found is None:
        cache = runner.kv_cache_config
        spec = cache.kv_cache_groups[drafter.kv_cache_gid].kv_cache_spec
        found = DrafterKV(
            slots=cache.num_blocks * spec.block_size,
            block_size=drafter.block_size,
            room=drafter.max_num_tokens,
            device=drafter.device,
        )
        drafter.vspec_kv, drafter.vspec_runner = found, runner
    return found


def _metadata(step: Any, replay: Replay) -> Any:
    """The step's attention metadata, made that of a replay.

    What it caches or keeps only for the step's own rows is left out: such fields default to None.
    """
    import torch

    device = step.seq_lens.device
    rows = torch.tensor(replay.rows, device=device)
    starts = torch.tensor([0, *replay.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    ends = torch.tensor(replay.ends, dtype=torch.int32)
    left_out = {
        field.name: None for field in dataclasses.fields(step) if field.default is None and hasattr(step, field.name)
    }
    known: dict[str, Any] = {"seq_lens_cpu_upper_bound": ends}
    if getattr(step, "is_prefilling", None) is not None:
        known["is_prefilling"] = torch.ones(len(rows), dtype=torch.bool)
    return dataclasses.replace(
        step,
        **left_out | {name: value for name, value in known.items() if name in left_out},
        query_start_loc=starts.to(device),
        query_start_loc_cpu=starts,
        seq_lens=ends.to(device),
        num_reqs=len(rows),
        num_actual_tokens=int(starts[-1]),
        max_query_len=max(replay.lengths),
        max_seq_len=max(replay.ends),
        block_table_tensor=step.block_table_tensor[rows],
        slot_mapping=replay.slots,
    )
