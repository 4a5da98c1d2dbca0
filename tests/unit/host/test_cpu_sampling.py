"""The repaired expand kernel against the plainest code that could be right."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from vllm_hust_vspec.host.cpu_sampling import expand


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=9),
    st.sampled_from([torch.float32, torch.float64, torch.int32, torch.int64]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_expand_repeats_each_value_for_its_tokens(
    rows: list[tuple[int, int]], dtype: torch.dtype, replace_from: int, replace_to: int
) -> None:
    values = [value * (0.25 if dtype.is_floating_point else 1) for value, _ in rows]
    counts = [count for _, count in rows]
    want = [
        replace_to if replace_from != replace_to and value == replace_from else value
        for value, count in zip(values, counts, strict=True)
        for _ in range(count)
    ]
    got = expand(
        None,
        torch.tensor(values, dtype=dtype),
        torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32),
        sum(counts),
        replace_from,
        replace_to,
    )
    assert got.dtype == dtype
    assert got.tolist() == torch.tensor(want, dtype=dtype).tolist()
