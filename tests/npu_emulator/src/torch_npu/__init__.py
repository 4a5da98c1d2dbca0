"""torch_npu on host memory: importing it makes "npu" a device of torch, and installs what vLLM-Ascend calls.

Everything is emulated. docs/emulated-npu.md says what a run here shows and what it cannot show.
"""

import sys
from typing import Any


def _autoload() -> None:
    """Entry point of torch.backends; importing this package does it all.

    It comes before `import torch`, which looks for it here when this package is imported first.
    """


import torch  # noqa: E402

from torch_npu import _native  # noqa: E402  (registers the device with torch)
from torch_npu import npu as npu  # noqa: E402

__version__ = "2.13.0+emu"

# Numbers of dtypes that torch has not, as hosts pass them to operators (which are not emulated).
float4_e2m1fn_x2 = 296
hifloat8 = 290
float8_e8m0fnu = 293
float8_e4m3fn = 292


def _register_device() -> None:
    utils: Any = torch.utils
    utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", npu)
    for name in ("torch.npu", "torch.npu.memory", "torch.npu.random"):
        sys.modules[name] = sys.modules[name.replace("torch.", "torch_npu.", 1)]
    utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    torch.version.cann = "8.5.0"  # type: ignore[attr-defined]


_register_device()

from torch_npu import _C, c_ascend, hccl, op_plugin, ops, profiler, triton_ascend  # noqa: E402  (they need the device)

globals().update(ops.export())
hccl.install()
triton_ascend.install()
c_ascend.install()


def __getattr__(name: str) -> Any:
    return ops.missing(name)


__all__ = ["_C", "_native", "npu", "op_plugin", "profiler"]
