"""torch.npu: which devices there are and what they are."""

from dataclasses import dataclass
from typing import Any

import torch

from torch_npu import _native

Device = torch.device | str | int | None

CUBE_CORES, VECTOR_CORES = 24, 48  # of the Ascend 910B that vllm-ascend plans its kernels for


@dataclass(frozen=True, slots=True)
class NPUDeviceProperties:
    """What `get_device_properties` returns; total_memory in bytes."""

    name: str
    total_memory: int
    uuid: str
    cube_core_num: int = CUBE_CORES
    vector_core_num: int = VECTOR_CORES
    multi_processor_count: int = CUBE_CORES


def index_of(device: Device) -> int:
    """Index of a device given in any of torch's ways; None and "npu" are the current one."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return current_device() if device < 0 else device
    device = torch.device(device)
    if device.type != "npu":
        raise ValueError(f"expected an npu device, not {device}")
    return current_device() if device.index is None else device.index


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing to do: the device is ready as soon as torch_npu is imported."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return int(_native.device_count())


def current_device() -> int:
    return int(_native.current_device())


def set_device(device: Device) -> None:
    _native.set_device(index_of(device))


class device:  # noqa: N801  (the name is torch_npu's)
    """Context manager that makes a device current; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self._index = index_of(device)
        self._previous = self._index

    def __enter__(self) -> None:
        self._previous = current_device()
        _native.set_device(self._index)

    def __exit__(self, *error: Any) -> None:
        _native.set_device(self._previous)


class device_of(device):  # noqa: N801
    """The same for the device of a tensor; other tensors than npu tensors change nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "npu" else None)


def get_device_name(device: Device = None) -> str:
    return get_device_properties(device).name


def get_device_properties(device: Device = None) -> NPUDeviceProperties:
    index = index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError(f"Invalid device id: npu:{index} of {device_count()}")
    return NPUDeviceProperties("Ascend910B (emulated)", int(_native.device_memory()), f"emulated-npu-{index}")


def get_device_capability(device: Device = None) -> None:
    """An NPU has none."""


def get_soc_version() -> int:
    """Number of the chip: TORCH_NPU_EMULATOR_SOC_VERSION, 223 (an Ascend 910B) unless set."""
    return int(_native.number("TORCH_NPU_EMULATOR_SOC_VERSION", 223))


def synchronize(device: Device = None) -> None:
    """Refused during capture, and while a replay waits for an external event: it would not return."""
    _native.check_synchronise("torch.npu.synchronize")


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    return True


def set_compile_mode(jit_compile: bool = False) -> None:
    """Nothing to do: no kernel is compiled here."""


def set_option(option: dict[str, Any]) -> None:
    """Nothing to do: options steer kernels that are not there."""
