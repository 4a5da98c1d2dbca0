"""A draft model beside a target with full graphs on vLLM-Ascend, repaired.

A full graph of the target pads its batch with requests. The drafter is handed the batch without them, but for the
block table, which keeps its padded rows; a draft model then counts more requests than there are.
"""

from __future__ import annotations

from typing import Any

FIRST_PASS = "vllm_ascend.spec_decode.llm_base_proposer:AscendSpecDecodeBaseProposer.set_inputs_first_pass"


def set_inputs_first_pass(original: Any, drafter: Any, *args: Any, cad: Any, **kwargs: Any) -> Any:
    """Prepare a draft model's first pass with one row of the block table for each request.

    cad.block_table_tensor: int32 [at least num_reqs, blocks a request].
    """
    if drafter.needs_extra_input_slots:
        cad.block_table_tensor = cad.block_table_tensor[: cad.num_reqs]
    return original(drafter, *args, cad=cad, **kwargs)
