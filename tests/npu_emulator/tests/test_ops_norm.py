"""Norms, activations and quantisation against formulas written out in double precision."""

import pytest
import torch
from torch.nn import functional

import torch_npu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def npu(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).npu()


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert actual.device.type == "npu"
    torch.testing.assert_close(actual.cpu().double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def normalised(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    x, gamma = x.cpu().double(), gamma.cpu().double()
    rstd = 1 / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()
    return x * rstd * gamma, rstd


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 8), (0, 16), (1, 1)])
def test_rms_norm_is_the_formula_and_returns_fp32_rstd(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, gamma = npu(*shape, dtype=dtype), npu(shape[-1], dtype=dtype, seed=1)
    y, rstd = torch_npu.npu_rms_norm(x, gamma, 1e-5)
    expected, expected_rstd = normalised(x, gamma, 1e-5)
    close(y, expected, dtype)
    close(rstd, expected_rstd, torch.float32)
    assert y.dtype == dtype
    assert rstd.dtype == torch.float32
    assert rstd.shape == (*shape[:-1], 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_returns_the_sum_and_leaves_its_inputs(dtype: torch.dtype) -> None:
    x1, x2, gamma = npu(4, 32, dtype=dtype), npu(4, 32, dtype=dtype, seed=1), npu(32, dtype=dtype, seed=2)
    before = x1.cpu(), x2.cpu()
    y, _, total = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-6)
    assert torch.equal(total.cpu(), before[0] + before[1])
    close(y, normalised(total, gamma, 1e-6)[0], dtype)
    assert torch.equal(x1.cpu(), before[0])
    assert torch.equal(x2.cpu(), before[1])


def test_rms_norm_refuses_a_gamma_of_another_width() -> None:
    with pytest.raises(ValueError, match="gamma"):
        torch_npu.npu_rms_norm(npu(2, 8), npu(4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [((3, 16), -1), ((4, 3), 0), ((0, 8), -1)])
def test_swiglu_gates_with_the_first_half(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x = npu(*shape, dtype=dtype)
    gate, up = x.cpu().double().chunk(2, dim)
    close(torch_npu.npu_swiglu(x, dim), functional.silu(gate) * up, dtype)


def test_swiglu_refuses_an_odd_width() -> None:
    with pytest.raises(ValueError, match="odd"):
        torch_npu.npu_swiglu(npu(2, 7))


def test_fast_gelu_is_the_sigmoid_form() -> None:
    x = npu(5, 7)
    close(torch_npu.npu_fast_gelu(x), x.cpu().double() / (1 + (-1.702 * x.cpu().double()).exp()), torch.float32)


def test_dynamic_quant_restores_each_row_within_half_a_step() -> None:
    x = npu(5, 64) * torch.tensor([[1e-3], [1.0], [50.0], [0.0], [7.0]]).npu()
    q, scale = torch_npu.npu_dynamic_quant(x)
    assert q.dtype == torch.int8
    assert scale.shape == (5,)
    error = (q.cpu().float() * scale.cpu()[:, None] - x.cpu()).abs()
    assert (error <= scale.cpu()[:, None] / 2 + 1e-9).all()


@pytest.mark.parametrize("div_mode", [True, False])
def test_add_rms_norm_quant_is_norm_then_rounding(div_mode: bool) -> None:
    x1, x2, gamma = npu(4, 16), npu(4, 16, seed=1), npu(16, seed=2)
    scale, offset = torch.full((16,), 0.05).npu(), torch.full((16,), 3.0).npu()
    y1, y2, total = torch_npu.npu_add_rms_norm_quant(x1, x2, gamma, scale, offset, epsilon=1e-6, div_mode=div_mode)
    y = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-6)[0].cpu()
    expected = (y / 0.05 if div_mode else y * 0.05).add(3).round().clamp(-128, 127).to(torch.int8)
    assert torch.equal(y1.cpu(), expected)
    assert torch.equal(y2.cpu(), expected)
    assert torch.equal(total.cpu(), x1.cpu() + x2.cpu())


def test_add_rms_norm_dynamic_quant_smooths_before_it_rounds() -> None:
    x1, x2, gamma, smooth = npu(3, 8), npu(3, 8, seed=1), npu(8, seed=2), npu(8, seed=3).abs()
    q, _, total, scale, _ = torch_npu.npu_add_rms_norm_dynamic_quant(x1, x2, gamma, smooth_scale1=smooth)
    y = normalised(total, gamma, 1e-6)[0] * smooth.cpu().double()
    assert ((q.cpu() * scale.cpu()[:, None] - y).abs() <= scale.cpu()[:, None] / 2 + 1e-6).all()


def test_quantize_to_a_float_format_names_the_operator() -> None:
    with pytest.raises(NotImplementedError, match="npu_quantize"):
        torch.ops.npu.npu_quantize(npu(2, 4), npu(4), None, torch.float8_e4m3fn, -1, True)
