"""How operators are registered: tracing, devices, memory formats, and what is exported."""

import pytest
import torch
from packaging.version import Version

import torch_npu
from torch_npu import ops
from torch_npu.ops.binding import Namespace


def test_a_compiled_function_traces_through_the_operators_in_one_graph() -> None:
    def layer(x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, _, residual = torch.ops.npu.npu_add_rms_norm(x, residual, gamma, 1e-6)
        return torch.ops.npu.npu_swiglu(y), residual

    inputs = [torch.randn(*shape).npu() for shape in ((3, 8), (3, 8), (8,))]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for actual, expected in zip(compiled(*inputs), layer(*inputs), strict=True):
        assert actual.device.type == "npu"
        assert torch.equal(actual.cpu(), expected.cpu())


def test_host_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="npu_swiglu"):
        torch_npu.npu_swiglu(torch.ones(2, 4))


def test_results_live_in_memory_of_the_device() -> None:
    before = torch.npu.memory_allocated()
    y = torch_npu.npu_swiglu(torch.ones(1024, 1024).npu())
    assert y.device == torch.device("npu", torch.npu.current_device())
    y.add_(1)
    assert torch.npu.memory_allocated() >= before


@pytest.mark.parametrize("name", ["npu_rms_norm", "_npu_rotary_embedding", "npu_fused_infer_attention_score", "atb"])
def test_torch_npu_shows_the_operators(name: str) -> None:
    assert name in ops.export()
    assert getattr(torch_npu, name) is ops.export()[name] or name == "atb"


def test_parts_of_torch_npu_that_are_not_emulated_name_their_functions() -> None:
    with pytest.raises(NotImplementedError, match=r"torch_npu\.atb\.npu_paged_cache_load is not emulated"):
        torch_npu.atb.npu_paged_cache_load()


def test_an_operator_of_ones_own_can_be_added() -> None:
    """What docs/emulated-npu.md tells people to do."""
    own = Namespace("emulator_test")

    @own.operator("double(Tensor x) -> Tensor")
    def double(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type in ("cpu", "meta")
        return x * 2

    @own.call("write_ones")
    def write_ones(out: torch.Tensor) -> None:
        out.fill_(1)

    x = torch.full((2,), 3.0).npu()
    assert torch.ops.emulator_test.double(x).cpu().tolist() == [6, 6]
    assert torch.ops.emulator_test.double(x.to("meta")).shape == (2,)
    own.exported["write_ones"](x)
    assert x.cpu().tolist() == [1, 1]


def test_hosts_can_compare_the_version_of_cann() -> None:
    assert Version(torch.version.cann) >= Version("8.0")


def test_a_format_cast_is_a_copy() -> None:
    x = torch.arange(4.0).npu()
    cast = torch_npu.npu_format_cast(x, torch_npu.Format.FRACTAL_NZ)
    x.zero_()
    assert cast.cpu().tolist() == [0, 1, 2, 3]
    assert torch_npu.get_npu_format(cast) == torch_npu.Format.ND
    assert torch_npu.empty_with_format([2, 3], torch.float16, "npu", 29).shape == (2, 3)


def test_prefetch_changes_nothing() -> None:
    x = torch.arange(4.0).npu()
    torch_npu.npu_prefetch(x, None, 16)
    assert x.cpu().tolist() == [0, 1, 2, 3]


def test_matmul_add_fp32_adds_to_its_target() -> None:
    x, weight = torch.randn(5, 3).half(), torch.randn(5, 2).half()
    target = torch.ones(3, 2).npu()
    torch_npu._npu_matmul_add_fp32(x.npu(), weight.npu(), target)
    torch.testing.assert_close(target.cpu(), 1 + x.float().T @ weight.float())
