"""FIA in every layout, mask and stage that the hosts use, against attention_reference."""

from itertools import accumulate
from typing import Any

import pytest
import torch
from attention_reference import attention, band, causal, everything, paged, ragged

import torch_npu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()
WIDTH, BLOCK = 16, 8
SCALE = WIDTH**-0.5

# (query lengths, key lengths): what one step of a server looks like.
STEPS = {
    "decode": ([1, 1, 1, 1], [1, 8, 9, 23]),
    "verify": ([4, 4, 4], [4, 17, 8]),
    "prefill": ([5, 1, 16], [5, 1, 16]),
    "chunked": ([5, 1, 8, 3], [21, 40, 8, 11]),
    "padding": ([2, 0, 1, 0], [7, 0, 16, 0]),
    "block boundaries": ([1, 1, 1], [BLOCK - 1, BLOCK, BLOCK + 1]),
}
HEADS = [(4, 4), (4, 2), (6, 1)]


class Case:
    """The tensors of one step, and the call that computes it."""

    def __init__(self, step: str, heads: tuple[int, int] = (4, 2), dtype: torch.dtype = torch.float32) -> None:
        self.query_lengths, self.key_lengths = STEPS[step]
        self.heads, self.key_heads = heads
        self.dtype = dtype
        self.queries = ragged(self.query_lengths, self.heads, WIDTH, dtype, 1)
        self.keys = ragged(self.key_lengths, self.key_heads, WIDTH, dtype, 2)
        self.values = ragged(self.key_lengths, self.key_heads, WIDTH, dtype, 3)

    def reference(self, visible: Any = causal, sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return attention(self.queries, self.keys, self.values, SCALE, visible, sinks)

    def packed(self, **options: Any) -> dict[str, Any]:
        return self.arguments(
            key=torch.cat(self.keys).npu(), value=torch.cat(self.values).npu(),
            actual_seq_lengths_kv=list(accumulate(self.key_lengths)), **options,
        )  # fmt: skip

    def paged(self, cache_layout: str = "BnBsH", **options: Any) -> dict[str, Any]:
        key, table = paged(self.keys, BLOCK)
        value, _ = paged(self.values, BLOCK, table)
        shape = (lambda x: x.flatten(2)) if cache_layout == "BnBsH" else (lambda x: x.transpose(1, 2).contiguous())
        return self.arguments(
            key=shape(key).npu(), value=shape(value).npu(), block_table=table.npu(), block_size=BLOCK,
            actual_seq_lengths_kv=self.key_lengths, **options,
        )  # fmt: skip

    def arguments(self, **options: Any) -> dict[str, Any]:
        common = {
            "query": torch.cat(self.queries).npu(), "actual_seq_lengths": list(accumulate(self.query_lengths)),
            "input_layout": "TND", "num_heads": self.heads, "num_key_value_heads": self.key_heads, "scale": SCALE,
            "sparse_mode": 3, "atten_mask": MASK,
        }  # fmt: skip
        return common | options

    def check(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        assert actual.device.type == "npu"
        assert actual.dtype == self.dtype
        tolerance = TOLERANCE[self.dtype]
        torch.testing.assert_close(actual.cpu().double().view(expected.shape), expected, atol=tolerance, rtol=tolerance)


def fia(arguments: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    arguments = dict(arguments)
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    return torch_npu.npu_fused_infer_attention_score(*tensors, **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("step", STEPS)
def test_paged_causal(step: str, heads: tuple[int, int], dtype: torch.dtype) -> None:
    case = Case(step, heads, dtype)
    case.check(fia(case.paged())[0], case.reference()[0])


@pytest.mark.parametrize("step", STEPS)
def test_packed_causal(step: str) -> None:
    case = Case(step)
    case.check(fia(case.packed())[0], case.reference()[0])


@pytest.mark.parametrize("step", ["decode", "chunked"])
def test_cache_with_heads_before_rows(step: str) -> None:
    case = Case(step)
    case.check(fia(case.paged("BnNBsD"))[0], case.reference()[0])


@pytest.mark.parametrize("step", STEPS)
def test_without_a_mask_every_key_is_seen(step: str) -> None:
    case = Case(step)
    options = {"sparse_mode": 0, "atten_mask": None}
    for arguments in (case.paged(**options), case.packed(**options)):
        case.check(fia(arguments)[0], case.reference(everything)[0])


@pytest.mark.parametrize("step", STEPS)
def test_sliding_window(step: str) -> None:
    case = Case(step)
    case.check(fia(case.paged(sparse_mode=4, pre_tokens=5, next_tokens=0))[0], case.reference(band(5, 0))[0])


def test_causal_from_the_start_of_the_keys() -> None:
    case = Case("chunked")
    case.check(fia(case.packed(sparse_mode=2))[0], case.reference(lambda i, j, queries, keys: j <= i)[0])


@pytest.mark.parametrize("step", STEPS)
def test_log_sum_exp_comes_when_asked_for(step: str) -> None:
    case = Case(step)
    _, lse = fia(case.paged(softmax_lse_flag=True))
    assert lse.shape == (sum(case.query_lengths), case.heads, 1)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse.cpu().double()[..., 0], case.reference()[1], atol=1e-5, rtol=1e-5)
    assert fia(case.paged())[1].cpu().tolist() == [0.0]


def test_two_halves_merge_by_their_log_sum_exp() -> None:
    """What context parallelism and chunked prefix attention rest on."""
    case = Case("decode")
    halves = [case.paged(softmax_lse_flag=True) for _ in range(2)]
    halves[0]["actual_seq_lengths_kv"] = [min(length, 4) for length in case.key_lengths]
    rest = [part[4:] for part in case.keys], [part[4:] for part in case.values]
    second = Case("decode")
    second.keys, second.values, second.key_lengths = *rest, [len(part) for part in rest[0]]
    (out1, lse1), (out2, lse2) = fia(halves[0]), fia(second.paged(softmax_lse_flag=True))
    weights = torch.stack([lse1.cpu(), lse2.cpu()]).masked_fill_(
        torch.stack([lse1.cpu(), lse2.cpu()]).isinf(), float("-inf")
    )
    merged = (torch.stack([out1.cpu(), out2.cpu()]) * weights.softmax(0)).sum(0)
    case.check(merged.npu(), case.reference()[0])


def test_a_query_that_sees_no_key_gives_zero() -> None:
    case = Case("decode")
    case.query_lengths, case.key_lengths = [3, 2], [1, 0]
    case.queries, case.keys, case.values = (
        ragged(lengths, heads, WIDTH, torch.float32, seed)
        for lengths, heads, seed in (([3, 2], 4, 1), ([1, 0], 2, 2), ([1, 0], 2, 3))
    )
    out, lse = fia(case.paged(softmax_lse_flag=True))
    case.check(out, case.reference()[0])
    assert out.cpu()[[0, 1, 3, 4]].count_nonzero() == 0
    assert lse.cpu()[[0, 1, 3, 4]].isposinf().all()
    assert lse.cpu()[2].isfinite().all()


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD", "BNSD_BSND"])
@pytest.mark.parametrize("lengths", [None, ([3, 6], [4, 9])])
def test_padded_layouts(layout: str, lengths: tuple[list[int], list[int]] | None) -> None:
    batch, rows, keys, heads, key_heads = 2, 6, 9, 4, 2
    counts = lengths or ([rows] * batch, [keys] * batch)
    query, key, value = (
        torch.randn(batch, length, count, WIDTH, generator=torch.Generator().manual_seed(seed))
        for seed, (length, count) in enumerate(((rows, heads), (keys, key_heads), (keys, key_heads)))
    )
    per_request = [[x[i, : counts[n][i]] for i in range(batch)] for n, x in ((0, query), (1, key), (1, value))]
    expected = torch.zeros(batch, rows, heads, WIDTH, dtype=torch.double)
    for i, part in enumerate(attention(*per_request, SCALE, causal)[0].split(counts[0])):
        expected[i, : counts[0][i]] = part
    shape = {"BSH": lambda x: x.flatten(2), "BSND": lambda x: x}.get(layout, lambda x: x.transpose(1, 2))
    out, lse = torch_npu.npu_fused_infer_attention_score(
        *(shape(x).contiguous().npu() for x in (query, key, value)), num_heads=heads, num_key_value_heads=key_heads,
        scale=SCALE, input_layout=layout, sparse_mode=3, atten_mask=MASK, softmax_lse_flag=True,
        actual_seq_lengths=lengths[0] if lengths else None, actual_seq_lengths_kv=lengths[1] if lengths else None,
    )  # fmt: skip
    expected = {"BSH": expected.flatten(2), "BNSD": expected.transpose(1, 2)}.get(layout, expected)
    assert lse.shape == (batch, heads, rows, 1)
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-5, rtol=1e-5)


def test_a_full_mask_hides_what_it_marks() -> None:
    query, key, value = (torch.randn(2, 3, 5, WIDTH)[:, :, :rows] for rows in (4, 5, 5))
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.4
    out, _ = torch_npu.npu_fused_infer_attention_score(
        *(x.contiguous().npu() for x in (query, key, value)),
        atten_mask=mask.npu(),
        num_heads=3,
        scale=SCALE,
        input_layout="BNSD",
    )
    expected = [
        attention(
            [query[i].transpose(0, 1)], [key[i].transpose(0, 1)], [value[i].transpose(0, 1)], SCALE,
            lambda q, k, *_, i=i: not mask[i, 0, q, k],
        )[0].transpose(0, 1)
        for i in range(2)
    ]  # fmt: skip
    torch.testing.assert_close(out.cpu().double(), torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_version_2_takes_sinks_and_its_own_names() -> None:
    case = Case("chunked")
    sinks = torch.randn(case.heads, generator=torch.Generator().manual_seed(9))
    given = case.paged()
    renamed = {"actual_seq_lengths": "actual_seq_qlen", "actual_seq_lengths_kv": "actual_seq_kvlen",
               "num_heads": "num_query_heads", "scale": "softmax_scale"}  # fmt: skip
    arguments = {renamed.get(name, name): value for name, value in given.items()}
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        *tensors, learnable_sink=sinks.npu(), return_softmax_lse=True, **arguments
    )
    expected, expected_lse = case.reference(sinks=sinks)
    case.check(out, expected)
    torch.testing.assert_close(lse.cpu().double()[..., 0], expected_lse, atol=1e-5, rtol=1e-5)


def test_out_form_writes_in_place_and_returns_its_targets() -> None:
    case = Case("verify")
    arguments = case.paged(softmax_lse_flag=True)
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(**arguments)
    out = torch.full((12, 4, WIDTH), 7.0).npu(), torch.empty(12, 4, 1).npu()
    returned = torch_npu.npu_fused_infer_attention_score.out(**arguments, workspace=workspace, out=list(out))
    case.check(out[0], case.reference()[0])
    torch.testing.assert_close(out[1].cpu().double()[..., 0], case.reference()[1], atol=1e-5, rtol=1e-5)
    assert [x.data_ptr() for x in returned] == [x.data_ptr() for x in out]


def test_out_form_without_log_sum_exp_leaves_its_second_target() -> None:
    case = Case("decode")
    out = torch.empty(4, 4, WIDTH).npu(), torch.full((1,), 5.0).npu()
    torch_npu.npu_fused_infer_attention_score.out(**case.paged(), workspace=None, out=list(out))
    case.check(out[0], case.reference()[0])
    assert out[1].cpu().tolist() == [5.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atten_mask": None}, "atten_mask"),
        ({"atten_mask": torch.zeros(2048, 2048, dtype=torch.bool).npu()}, "strictly upper triangular"),
        ({"atten_mask": torch.ones(64, 64, dtype=torch.bool).triu(1).npu()}, "2048"),
        ({"atten_mask": torch.ones(2048, 2048).triu(1).npu()}, "bool, int8 or uint8"),
        ({"actual_seq_lengths": [1, 2, 3]}, "the last of actual_seq_lengths"),
        ({"actual_seq_lengths": [2, 1, 3, 4]}, "must not decrease"),
        ({"actual_seq_lengths": None}, "actual_seq_lengths is required"),
        ({"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv is required"),
        ({"actual_seq_lengths_kv": [1, 8]}, "2 entries for 4 requests"),
        ({"actual_seq_lengths_kv": [1, 8, 9, 1000]}, "1000 keys"),
        ({"num_key_value_heads": 3}, "paged cache"),
        ({"block_size": 16}, "paged cache"),
    ],
)  # fmt: skip
def test_what_the_hardware_refuses_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        fia(Case("decode").paged() | change)


def test_a_table_that_names_no_block_of_the_cache_is_refused() -> None:
    arguments = Case("decode").paged()
    arguments["block_table"] = arguments["block_table"].clone().fill_(99)
    with pytest.raises(IndexError, match="99"):
        fia(arguments)


def test_a_workspace_of_a_smaller_query_is_refused() -> None:
    small, large = Case("decode"), Case("prefill")
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(**small.paged())
    with pytest.raises(ValueError, match="workspace"):
        torch_npu.npu_fused_infer_attention_score.out(
            **large.paged(), workspace=workspace, out=[torch.empty(22, 4, WIDTH).npu(), torch.empty(1).npu()]
        )


def test_quantised_arguments_and_other_layouts_name_the_operator() -> None:
    scale = torch.ones(1).npu()
    with pytest.raises(NotImplementedError, match="npu_fused_infer_attention_score with key_antiquant_scale"):
        fia(Case("decode").paged() | {"key_antiquant_scale": scale})
    with pytest.raises(NotImplementedError, match="TND_NTD"):
        fia(Case("decode").paged() | {"input_layout": "TND_NTD"})


def test_shapes_can_be_traced_without_a_device() -> None:
    case = Case("verify")
    arguments = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in case.paged().items()}
    out, lse = fia(arguments | {"softmax_lse_flag": True})
    assert out.shape == (12, 4, WIDTH)
    assert lse.shape == (12, 4, 1)
    assert out.device.type == "meta"


def test_an_empty_query_gives_an_empty_output() -> None:
    arguments = Case("decode").paged() | {"query": torch.empty(0, 4, WIDTH).npu(), "actual_seq_lengths": []}
    assert fia(arguments)[0].shape == (0, 4, WIDTH)
