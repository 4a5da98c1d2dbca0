"""Under asynchronous scheduling penalties see the drafts of the step before, and those alone."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.host.ascend_penalties import sample


def runner(*, asynchronous: bool, copied: bool) -> Any:
    put: list[Any] = []
    return Thing(
        use_async_scheduling=asynchronous,
        _draft_token_req_ids=["a"] if copied else None,
        _get_draft_token_ids_cpu=lambda: ([[5, 6]], ["a"]),
        input_batch=Thing(update_async_spec_token_ids=put.append),
        put=put,
    )


@pytest.mark.parametrize(
    ("asynchronous", "copied", "metadata", "put"),
    [
        (True, True, "drafts", [[[5, 6]]]),
        (True, False, "drafts", []),
        (True, True, None, []),
        (False, True, "drafts", []),
    ],
)
def test_real_drafts_are_put_in_where_they_were_copied(
    asynchronous: bool, copied: bool, metadata: Any, put: list[Any]
) -> None:
    host = runner(asynchronous=asynchronous, copied=copied)
    assert sample(lambda runner, logits, given: (logits, given), host, "logits", metadata) == ("logits", metadata)
    assert host.put == put
    assert host._draft_token_req_ids == (None if asynchronous else ["a"])
