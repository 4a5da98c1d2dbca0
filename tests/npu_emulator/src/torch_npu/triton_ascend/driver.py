"""The Triton driver that hosts ask for the device's properties. It compiles nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from torch_npu import npu
from torch_npu.ops.binding import not_emulated

PROPERTIES = {
    "num_aicore": 24,
    "num_vectorcore": 48,
    "multiprocessor_count": 24,
    "max_shared_mem": 192 * 1024,
    "warpSize": 32,
}


class Utilities:
    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        return dict(PROPERTIES)


class NpuDriver:
    """An Ascend 910B for which kernels are interpreted, never compiled."""

    utils = Utilities()
    launcher_cls = staticmethod(not_emulated("the compilation of Triton kernels"))

    def get_current_device(self) -> int:
        return int(npu.current_device())

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return npu

    def get_active_torch_device(self) -> torch.device:
        return torch.device("npu", self.get_current_device())

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("npu", "Ascend910B", 0)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Every configuration takes as long as any other, so that auto-tuning picks the first."""

        def benchmark(kernel: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> list[float]:
            kernel()
            return [1.0] * len(quantiles or (0.5,))

        return benchmark


def install() -> None:
    triton.runtime.driver.set_active(NpuDriver())
