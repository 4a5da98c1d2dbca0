"""A draft model is handed one row of the block table for each request, and an EAGLE head what the host gives it."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest
import torch

from vllm_hust_vspec.host.ascend_draft_model import set_inputs_first_pass


@pytest.mark.parametrize(("extra_slots", "rows"), [(True, 3), (False, 5)])
def test_padding_never_makes_a_phantom_request(extra_slots: bool, rows: int) -> None:
    batch = Thing(num_reqs=3, block_table_tensor=torch.arange(10).view(5, 2))

    def original(drafter: Any, tokens: str, *, cad: Any, other: int) -> tuple[Any, ...]:
        return tokens, cad.block_table_tensor.tolist(), other

    got = set_inputs_first_pass(original, Thing(needs_extra_input_slots=extra_slots), "tokens", cad=batch, other=1)
    assert got == ("tokens", torch.arange(10).view(5, 2)[:rows].tolist(), 1)
