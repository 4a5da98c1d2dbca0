"""What the emulator changes in modules of the hosts, while they are imported. There are two reasons.

**Speed.** `vllm_ascend.ops.rotary_embedding` has a Triton branch and one that calls torch_npu's operators, and picks by
a module attribute, HAS_TRITON. Both compute the same, but interpreting the Triton kernel took 42 of the 43 s of a tiny
end-to-end run, so the attribute is set to False and the host's other branch runs. The variable
TORCH_NPU_EMULATOR_TRITON_ROTARY=1 leaves it.

**torchvision.** vLLM-Ascend imports its image transforms. Its wheels are built for CUDA, so beside a CPU torch its
compiled operators do not load, which it tolerates, except in two modules that attach formulas to those operators. There
is nothing to attach them to, so these modules are left empty; where the operators did load they run as they are.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType

Run = Callable[[ModuleType], None]
KEEP_TRITON_ROTARY = "TORCH_NPU_EMULATOR_TRITON_ROTARY"


def use_torch_npu_rotary(module: ModuleType, run: Run) -> None:
    run(module)
    if os.environ.get(KEEP_TRITON_ROTARY) == "1":
        return
    if not hasattr(module, "HAS_TRITON"):
        raise RuntimeError(f"{module.__name__} no longer chooses its rotary branch by HAS_TRITON; see {__file__}")
    setattr(module, "HAS_TRITON", False)  # noqa: B010  # mypy knows no such attribute of a module


def register_only_loaded_operators(module: ModuleType, run: Run) -> None:
    if sys.modules["torchvision.extension"]._has_ops():
        run(module)


HOOKS: dict[str, Callable[[ModuleType, Run], None]] = {
    "vllm_ascend.ops.rotary_embedding": use_torch_npu_rotary,
    "torchvision._autograd_registrations": register_only_loaded_operators,
    "torchvision._meta_registrations": register_only_loaded_operators,
}


class HookedFinder:
    """Lets the ordinary finders find a module of HOOKS and hands its execution to the hook."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in HOOKS or name in self._searching:
            return None
        self._searching.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching.remove(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_hooked(module: ModuleType) -> None:
            HOOKS[name](module, run)

        spec.loader.exec_module = run_hooked  # type: ignore[method-assign]
        return spec


def install() -> None:
    if not any(isinstance(finder, HookedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, HookedFinder())
