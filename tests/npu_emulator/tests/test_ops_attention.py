"""The attention operators beside FIA against attention_reference."""

from itertools import accumulate

import pytest
import torch
from attention_reference import attention, band, causal, everything, paged, ragged

import torch_npu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
WIDTH, BLOCK, HEADS, KEY_HEADS = 16, 8, 4, 2
SCALE = WIDTH**-0.5
MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def requests(query_lengths: list[int], key_lengths: list[int], dtype: torch.dtype = torch.float32):  # type: ignore
    return (
        ragged(query_lengths, HEADS, WIDTH, dtype, 1),
        ragged(key_lengths, KEY_HEADS, WIDTH, dtype, 2),
        ragged(key_lengths, KEY_HEADS, WIDTH, dtype, 3),
    )


def check(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(actual.cpu().double().view(expected.shape), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [[1, 7, 8, 9], [20], [3, 0, 5]])
def test_paged_attention_decodes_one_row_a_request(lengths: list[int], dtype: torch.dtype) -> None:
    queries, keys, values = requests([1] * len(lengths), lengths, dtype)
    key_cache, table = paged(keys, BLOCK)
    value_cache, _ = paged(values, BLOCK, table)
    out = torch.full((len(lengths), HEADS, WIDTH), 7.0, dtype=dtype).npu()
    arguments = {
        "query": torch.cat(queries).npu(), "key_cache": key_cache.npu(), "value_cache": value_cache.npu(),
        "num_kv_heads": KEY_HEADS, "num_heads": HEADS, "scale_value": SCALE, "block_table": table.npu(),
        "context_lens": torch.tensor(lengths, dtype=torch.int32), "out": out,
    }  # fmt: skip
    workspace = torch_npu._npu_paged_attention_get_workspace(**arguments)
    torch_npu._npu_paged_attention(**arguments, workspace=workspace)
    check(out, attention(queries, keys, values, SCALE, causal)[0], dtype)


def test_paged_attention_needs_a_length_for_every_row() -> None:
    queries, keys, _values = requests([1, 1], [3, 4])
    cache, table = paged(keys, BLOCK)
    with pytest.raises(ValueError, match="1 context_lens for 2 query rows"):
        torch_npu._npu_paged_attention(
            torch.cat(queries).npu(), cache.npu(), cache.npu(), KEY_HEADS, HEADS, SCALE, table.npu(),
            torch.tensor([3], dtype=torch.int32), torch.empty(2, HEADS, WIDTH).npu(),
        )  # fmt: skip


def added(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape).masked_fill_(mask, float("-inf"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_splitfuse_adds_a_row_of_the_mask_to_every_query_row(dtype: torch.dtype) -> None:
    query_lengths, key_lengths = [4, 1, 3], [9, 17, 3]
    queries, keys, values = requests(query_lengths, key_lengths, dtype)
    key_cache, table = paged(keys, BLOCK)
    value_cache, _ = paged(values, BLOCK, table)
    offsets = [keys - queries for queries, keys in zip(query_lengths, key_lengths, strict=True)]
    rows = [offset + i for offset, length in zip(offsets, query_lengths, strict=True) for i in range(length)]
    mask = added(torch.arange(17) > torch.tensor(rows)[:, None]).to(dtype)
    out = torch.empty(8, HEADS, WIDTH, dtype=dtype).npu()
    torch_npu._npu_paged_attention_splitfuse(
        query=torch.cat(queries).npu(), key_cache=key_cache.npu(), value_cache=value_cache.npu(), mask=mask.npu(),
        block_table=table.npu(), seq_len=torch.tensor(query_lengths, dtype=torch.int32),
        context_lens=torch.tensor(key_lengths, dtype=torch.int32), num_kv_heads=KEY_HEADS, num_heads=HEADS,
        scale_value=SCALE, out=out,
    )  # fmt: skip
    check(out, attention(queries, keys, values, SCALE, causal)[0], dtype)


@pytest.mark.parametrize("masked", [True, False])
def test_flash_attention_of_packed_requests(masked: bool) -> None:
    lengths = [5, 1, 9]
    queries, keys, values = requests(lengths, lengths)
    out = torch.empty(15, HEADS, WIDTH).npu()
    common = {
        "query": torch.cat(queries).npu(), "key": torch.cat(keys).npu(), "value": torch.cat(values).npu(),
        "seq_len": torch.tensor(lengths, dtype=torch.int32), "scale_value": SCALE, "num_heads": HEADS,
        "num_kv_heads": KEY_HEADS, "out": out,
    }  # fmt: skip
    if masked:
        torch_npu._npu_flash_attention(mask=added(torch.ones(9, 9, dtype=torch.bool).triu(1)).npu(), **common)
    else:
        torch_npu._npu_flash_attention_unpad(**common)
    check(out, attention(queries, keys, values, SCALE, causal if masked else everything)[0])


def test_a_boolean_mask_is_not_added() -> None:
    queries, keys, values = requests([2], [2])
    with pytest.raises(ValueError, match="floating point"):
        torch_npu._npu_flash_attention(
            torch.cat(queries).npu(), torch.cat(keys).npu(), torch.cat(values).npu(), MASK.npu(),
            torch.tensor([2], dtype=torch.int32), SCALE, HEADS, KEY_HEADS, torch.empty(2, HEADS, WIDTH).npu(),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "visible"), [(0, everything), (2, lambda i, j, *_: j <= i), (3, causal), (4, band(3, 1))]
)
def test_fusion_attention(mode: int, visible: object) -> None:
    query_lengths, key_lengths = [3, 6], [5, 6]
    queries, keys, values = requests(query_lengths, key_lengths)
    padded = torch.cat([*queries, torch.zeros(2, HEADS, WIDTH)])
    out, top, total, *_ = torch_npu.npu_fusion_attention(
        padded.npu(), torch.cat(keys).npu(), torch.cat(values).npu(), HEADS, "TND", scale=SCALE, sparse_mode=mode,
        atten_mask=MASK.npu() if mode else None, pre_tockens=3 if mode == 4 else 2147483647,
        next_tockens=1 if mode == 4 else 2147483647,
        actual_seq_qlen=[*accumulate(query_lengths), 0], actual_seq_kvlen=[*accumulate(key_lengths), 0],
    )  # fmt: skip
    expected, lse = attention(queries, keys, values, SCALE, visible)  # type: ignore[arg-type]
    check(out[:9], expected)
    assert out[9:].cpu().count_nonzero() == 0
    torch.testing.assert_close((top + total.log())[:9, :, 0].cpu().double(), lse, atol=1e-5, rtol=1e-5)


def test_operators_that_nobody_wrote_name_themselves() -> None:
    for call in (torch_npu.npu_mla_prolog_v3, torch_npu._npu_flash_attention_v3, torch_npu.npu_grouped_matmul):
        with pytest.raises(NotImplementedError, match=r"torch_npu\._?npu_\w+ is not emulated"):
            call()
    assert not hasattr(torch_npu, "no_such_thing")
