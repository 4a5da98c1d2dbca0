"""Penalties beside drafts under vLLM-Ascend's asynchronous scheduling, repaired.

A penalty at a draft's position counts the drafts before it. In asynchronous scheduling they are placeholders on the
host until the step that made them is over; vLLM puts the real ones in before it samples, vLLM-Ascend's runner does not.
"""

from __future__ import annotations

from typing import Any

SAMPLE = "vllm_ascend.worker.model_runner_v1:NPUModelRunner._sample"


def sample(original: Any, runner: Any, logits: Any, spec_decode_metadata: Any) -> Any:
    """Sample with the drafts that are verified, where a request's penalties need them on the host.

    logits: [num_reqs + num_draft_tokens, vocab_size].
    """
    if runner.use_async_scheduling:
        # The copy of the last step's drafts; made only where some request needs it, and good for this step alone.
        if spec_decode_metadata is not None and runner._draft_token_req_ids is not None:
            drafts, _ = runner._get_draft_token_ids_cpu()
            runner.input_batch.update_async_spec_token_ids(drafts)
        runner._draft_token_req_ids = None
    return original(runner, logits, spec_decode_metadata)
