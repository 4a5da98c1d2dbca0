"""Random numbers of a device come from its own generator."""

import pytest
import torch


def draw(device: str = "npu") -> list[float]:
    return torch.rand(4, device=device).tolist()


def test_the_hosts_generator_is_left_alone():
    state = torch.get_rng_state()
    torch.rand(4, device="npu"), torch.randn(4, device="npu"), torch.randperm(5, device="npu")
    torch.nn.functional.dropout(torch.ones(8, device="npu"))  # names no generator at all
    torch.empty(4, device="npu").exponential_()
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_draws_from_the_device():
    x = torch.ones(64, device="npu")
    torch.npu.manual_seed(1)
    first = torch.nn.functional.dropout(x).tolist()
    assert torch.nn.functional.dropout(x).tolist() != first
    torch.npu.manual_seed(1)
    assert torch.nn.functional.dropout(x).tolist() == first


def test_torch_manual_seed_seeds_every_device():
    torch.manual_seed(3)
    first = draw("npu:0"), draw("npu:1")
    torch.manual_seed(3)
    assert (draw("npu:0"), draw("npu:1")) == first


def test_devices_do_not_share_a_generator():
    torch.manual_seed(3)
    expected = draw("npu:1")
    torch.manual_seed(3)
    draw("npu:0")
    assert draw("npu:1") == expected


def test_state_is_saved_and_restored():
    state = torch.npu.get_rng_state("npu:1")
    first = draw("npu:1")
    assert draw("npu:1") != first
    torch.npu.set_rng_state(state, "npu:1")
    assert draw("npu:1") == first
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        inside = draw()
    assert draw() == inside


def test_a_generator_of_ones_own():
    generator = torch.Generator("npu").manual_seed(5)
    first = torch.rand(3, device="npu", generator=generator).tolist()
    assert torch.rand(3, device="npu", generator=generator.manual_seed(5)).tolist() == first
    assert generator.initial_seed() == 5
    assert generator.device.type == "npu"


def test_a_host_generator_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        torch.empty(3, device="npu").uniform_(generator=torch.Generator())
