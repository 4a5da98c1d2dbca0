"""torch_npu.profiler.dynamic_profile is not emulated; hosts import it at start and use it when they are told to."""

from typing import Any, NoReturn


def init(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("torch_npu.profiler.dynamic_profile.init is not emulated")


def step(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("torch_npu.profiler.dynamic_profile.step is not emulated")
