"""Operators on the device are the host's own kernels on the same memory, and what hardware refuses is refused."""

import numpy as np
import pytest
import torch

import torch_npu  # noqa: F401

OPERATORS = {
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y.T,
    "cat": lambda x, y: torch.cat((x, y)),
    "split": lambda x, y: torch.split(x, 2)[1] * 2,
    "topk": lambda x, y: torch.topk(x, 2).values,
    "sort": lambda x, y: torch.sort(x, -1).indices,
    "where": lambda x, y: torch.where(x > y, x, y),
    "index": lambda x, y: x[torch.tensor([2, 0], device=x.device)],
    "mask": lambda x, y: x[x > 0],
    "cumsum": lambda x, y: x.cumsum(0),
    "softmax": lambda x, y: x.softmax(-1),
    "layer_norm": lambda x, y: torch.nn.functional.layer_norm(x, (4,)),
    "scatter": lambda x, y: x.scatter(1, torch.zeros(4, 1, dtype=torch.long, device=x.device), y),
    "out": lambda x, y: torch.add(x, y, out=torch.empty(0, device=x.device)),
    "to": lambda x, y: x.to(torch.bfloat16).float(),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "unfold": lambda x, y: x.unfold(1, 2, 1),
    "view_as_complex": lambda x, y: torch.view_as_real(torch.view_as_complex(x.view(4, 2, 2)) * 1j),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_those_of_the_host(name):
    torch.manual_seed(0)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    result = OPERATORS[name](x.npu(), y.npu())
    assert result.device.type == "npu"
    # Not to the last bit: for some (layer_norm) torch has one operator on the host and composes it on a device.
    torch.testing.assert_close(result.cpu(), OPERATORS[name](x, y), rtol=1e-6, atol=1e-6)


def test_in_place_operators_and_views_write_to_the_same_memory():
    x = torch.zeros(2, 3, device="npu")
    address = x.data_ptr()
    x[1].add_(1)
    x.t()[0].mul_(5)
    x[:, 2] = 7
    assert x.tolist() == [[0, 0, 7], [5, 1, 7]]
    assert x.data_ptr() == address
    assert x.add_(1) is x


def test_gradients_flow():
    x = torch.ones(3, device="npu", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.device.type == "npu"
    assert x.grad.tolist() == [2, 2, 2]


def test_a_device_tensor_is_no_numpy_array():
    x = torch.ones(3, device="npu")
    for read in (x.numpy, lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match="can't convert npu:0 device type tensor to numpy"):
            read()


def test_tensors_of_two_devices_do_not_mix():
    x = torch.ones(3, device="npu")
    for other in (torch.ones(3), torch.ones(3, device="npu:1"), torch.ones(1)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            x + other
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, 3) @ torch.ones(3, 2, device="npu")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat((x, torch.ones(3)))


def test_a_host_number_mixes_as_on_hardware():
    x = torch.ones(3, device="npu")
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert x[torch.tensor([0, 2])].device.type == "npu"  # index operators take host indices


def test_copies_between_devices():
    x = torch.arange(3.0)
    on_device = x.to("npu:1")
    assert on_device.to("npu:0").device.index == 0
    target = torch.empty(3, dtype=torch.float64)
    target.copy_(on_device)
    assert torch.equal(target, x.double())
    on_device[0] = 9
    assert x[0] == 0  # a copy, not the same memory


def test_an_operator_with_a_host_kernel_alone_is_refused():
    library = torch.library.Library("emulator_test", "DEF")
    library.define("host_only(Tensor x) -> Tensor")
    library.impl("host_only", lambda x: x + 1, "CPU")
    assert torch.ops.emulator_test.host_only(torch.ones(1)).item() == 2
    with pytest.raises(NotImplementedError, match="emulator_test::host_only"):
        torch.ops.emulator_test.host_only(torch.ones(1, device="npu"))


def test_aliases_share_memory_both_ways():
    x = torch.zeros(4, device="npu:1")
    torch.ops.npu_emu.cpu_alias(x)[1] = 5
    assert x.tolist() == [0, 5, 0, 0]
    host = torch.zeros(2)
    device = torch.ops.npu_emu.npu_alias(host)
    device += 3
    assert device.device.type == "npu"
    assert host.tolist() == [3, 3]
    assert host.data_ptr() == device.data_ptr()


def test_an_alias_keeps_the_memory():
    alias = torch.ops.npu_emu.cpu_alias(torch.full((1000,), 4.0, device="npu"))
    torch.full((1000,), 5.0, device="npu")
    assert alias.eq(4).all()


def test_saved_and_loaded(tmp_path):
    torch.save(torch.arange(3, device="npu"), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt").device == torch.device("npu:0")
    assert torch.load(tmp_path / "x.pt", map_location="cpu").tolist() == [0, 1, 2]
