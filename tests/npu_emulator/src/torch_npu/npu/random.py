"""torch.npu: random numbers. Each device has a generator of its own, not the host's. An NPU draws others."""

import torch

from torch_npu import _native
from torch_npu.npu.devices import Device, current_device, device_count, index_of

default_generators: tuple[torch.Generator, ...] = tuple(_native.default_generator(i) for i in range(device_count()))


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    default_generators[current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    default_generators[current_device()].seed()


def seed_all() -> None:
    manual_seed_all(default_generators[0].seed())


def initial_seed() -> int:
    return default_generators[current_device()].initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """State of a device's generator, a uint8 tensor of the host."""
    return default_generators[index_of(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    default_generators[index_of(device)].set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for generator, new_state in zip(default_generators, new_states, strict=True):
        generator.set_state(new_state)
