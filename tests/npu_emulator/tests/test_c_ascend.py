"""vLLM-Ascend's compiled operators, reached as hosts reach them, through torch.ops._C_ascend."""

import subprocess
import sys

import pytest
import torch

import torch_npu
from torch_npu import c_ascend
from torch_npu.c_ascend.kernels import KERNELS

SIGNATURES = (
    "npu_add_rms_norm_bias(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-6) "
    "-> (Tensor y, Tensor rstd, Tensor x)",
    "npu_gemma_rms_norm(Tensor x, Tensor gamma, float epsilon=1e-6) -> (Tensor y, Tensor rstd)",
    "get_masked_input_and_mask(Tensor input, int org_vocab_start_index, int org_vocab_end_index, "
    "int num_org_vocab_padding, int added_vocab_start_index, int added_vocab_end_index) "
    "-> (Tensor masked_input, Tensor mask)",
    "npu_copy_and_expand_eagle_inputs(Tensor target_token_ids, Tensor target_positions, Tensor next_token_ids, "
    "Tensor query_start_loc, Tensor query_end_loc, int padding_token_id, int parallel_drafting_token_id, "
    "int num_padding_slots_per_request, bool shift_input_ids, int total_draft_tokens) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "swap_blocks(Tensor! x, Tensor! y, Tensor z) -> ()",
    "device_print(str msg) -> ()",
    "npu_nobody_wrote_this(Tensor x) -> Tensor",
)


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    c_ascend.register(SIGNATURES)


def test_add_rms_norm_bias_is_add_rms_norm_and_the_bias() -> None:
    x1, x2, gamma, beta = (torch.randn(*shape).npu() for shape in ((3, 8), (3, 8), (8,), (8,)))
    plain = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-5)
    for bias, expected in ((None, plain[0]), (beta, plain[0] + beta)):
        y, rstd, total = torch.ops._C_ascend.npu_add_rms_norm_bias(x1, x2, gamma, bias, 1e-5)
        assert torch.equal(y.cpu(), expected.cpu())
        assert torch.equal(rstd.cpu(), plain[1].cpu())
        assert torch.equal(total.cpu(), plain[2].cpu())


def test_gemma_rms_norm_adds_one_to_its_weight() -> None:
    x, gamma = torch.randn(3, 8).npu(), torch.randn(8).npu()
    expected = torch_npu.npu_rms_norm(x, gamma + 1, 1e-6)[0]
    assert torch.equal(torch.ops._C_ascend.npu_gemma_rms_norm(x, gamma, 1e-6)[0].cpu(), expected.cpu())


@pytest.mark.parametrize("rank", [0, 1])
def test_masked_input_finds_the_row_of_every_token_of_its_part(rank: int) -> None:
    # Vocabulary 0..9 with 100..103 added, split in two; a part holds 5 original rows, 1 of padding, 2 added.
    original, added = (range(5), range(100, 102)) if rank == 0 else (range(5, 10), range(102, 104))
    rows = [*original, None, *added]
    tokens = [0, 4, 5, 9, 100, 101, 102, 103]
    row, mask = torch.ops._C_ascend.get_masked_input_and_mask(
        torch.tensor(tokens).npu(), original.start, original.stop, 1, added.start, added.stop
    )
    assert row.cpu().tolist() == [rows.index(token) if token in rows else 0 for token in tokens]
    assert mask.cpu().tolist() == [token not in rows for token in tokens]
    assert row.dtype == torch.int64
    assert mask.dtype == torch.bool


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32).npu()


def test_draft_inputs_of_a_draft_model_keep_every_token_and_add_the_next() -> None:
    # Two requests: tokens 10 11 12 (the last rejected) and 20 21; one slot each, nothing dropped.
    result = torch.ops._C_ascend.npu_copy_and_expand_eagle_inputs(
        int32(10, 11, 12, 20, 21), int32(5, 6, 7, 0, 1), int32(91, 92), int32(0, 3, 5), int32(1, 4), 0, 77, 1, False, 7
    )
    ids, positions, rejected, parallel, slots, _ = (x.cpu().tolist() for x in result)
    assert ids == [10, 11, 91, 0, 20, 21, 92]
    assert positions == [5, 6, 7, 0, 0, 1, 2]
    assert rejected == [0, 0, 0, 1, 0, 0, 0]
    assert parallel == [0] * 7
    assert slots == [2, 6]


def test_draft_inputs_with_shift_and_parallel_slots() -> None:
    # EAGLE with three slots: the first token of each request is dropped, two masked tokens follow the next one.
    result = torch.ops._C_ascend.npu_copy_and_expand_eagle_inputs(
        int32(10, 11, 12, 20), int32(5, 6, 7, 0), int32(91, 92), int32(0, 3, 4), int32(1, 3), 3, 77, 3, True, 9
    )
    ids, positions, rejected, parallel, slots, mapping = (x.cpu().tolist() for x in result)
    assert ids == [11, 91, 77, 77, 3, 92, 77, 77, 0]
    assert positions == [5, 6, 7, 8, 0, 0, 1, 2, 0]
    assert rejected == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert parallel == [0, 0, 1, 1, 0, 0, 1, 1, 0]
    assert slots == [1, 2, 3, 5, 6, 7]
    assert mapping == [0, 1, 2, 5]


def test_shapes_of_draft_inputs_can_be_traced() -> None:
    tensors = [torch.empty(size, dtype=torch.int32, device="meta") for size in (5, 5, 2, 3, 2)]
    shapes = [tuple(x.shape) for x in torch.ops._C_ascend.npu_copy_and_expand_eagle_inputs(*tensors, 0, 77, 3, True, 9)]
    assert shapes == [(9,), (9,), (9,), (9,), (6,), (5,)]


def test_swap_blocks_crosses_between_devices() -> None:
    host, device = torch.arange(12.0).view(4, 3), torch.zeros(4, 3).npu()
    torch.ops._C_ascend.swap_blocks(host, device, torch.tensor([[3, 0], [1, 2]]))
    assert device.cpu().tolist() == [[9, 10, 11], [0, 0, 0], [3, 4, 5], [0, 0, 0]]


def test_device_print_prints(capsys: pytest.CaptureFixture[str]) -> None:
    torch.ops._C_ascend.device_print("here")
    assert capsys.readouterr().out == "here\n"


def test_an_operator_without_a_kernel_names_itself() -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.ops\._C_ascend\.npu_nobody_wrote_this is not emulated"):
        torch.ops._C_ascend.npu_nobody_wrote_this(torch.zeros(1).npu())


def test_missing_signatures_say_how_to_make_them() -> None:
    code = "import torch_npu, vllm_ascend.vllm_ascend_C"
    result = subprocess.run(
        [sys.executable, "-c", "import sys, types; sys.modules['vllm_ascend'] = types.ModuleType('vllm_ascend')\n"
         "sys.modules['vllm_ascend'].__path__ = []\n" + code],
        env={**__import__("os").environ, c_ascend.SCHEMAS_VARIABLE: "/nonexistent/signatures.txt"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode != 0
    assert "RuntimeError" in result.stderr
    assert "extract.py" in result.stderr
    assert "/nonexistent/signatures.txt" in result.stderr


def test_a_signature_that_cannot_be_read_is_named() -> None:
    code = (
        "import torch_npu\nfrom torch_npu import c_ascend\ntry:\n    c_ascend.register(['broken(Tensor'])\n"
        "except RuntimeError as error:\n    print(error)"
    )
    assert "broken(Tensor" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


def test_every_kernel_is_an_operator_of_the_installed_release() -> None:
    try:
        names = {line.partition("(")[0] for line in c_ascend.read_schemas()}
    except RuntimeError:
        pytest.skip("no vLLM-Ascend signatures in this environment")
    assert set(KERNELS) <= names
