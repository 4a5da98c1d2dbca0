"""torch_npu.profiler is not emulated: its names can be imported and looked up, using one raises NotImplementedError."""

from typing import Any, NoReturn

from torch_npu.profiler import dynamic_profile

_NAMES = (
    "AiCMetrics",
    "ExportType",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "profile",
    "tensorboard_trace_handler",
)


class _NotEmulated:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"torch_npu.profiler.{self._name}.{name} is not emulated")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torch_npu.profiler.{self._name} is not emulated")


def __getattr__(name: str) -> _NotEmulated:
    if name not in _NAMES:
        raise AttributeError(f"module 'torch_npu.profiler' has no attribute {name!r}")
    return _NotEmulated(name)


__all__ = ["dynamic_profile"]
