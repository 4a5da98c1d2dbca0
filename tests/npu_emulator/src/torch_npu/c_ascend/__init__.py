"""`torch.ops._C_ascend`: vLLM-Ascend's compiled extension, with its own signatures and kernels in torch.

The signatures come from a file that the set-up makes out of the installed release (extract.py), so that a call which
does not fit that release fails. `import vllm_ascend.vllm_ascend_C` registers them. Operators without a kernel here
raise NotImplementedError.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import torch

from torch_npu.c_ascend.kernels import KERNELS, META
from torch_npu.graph import device_call
from torch_npu.ops.binding import device_kernel, not_emulated

EXTENSION = "vllm_ascend.vllm_ascend_C"
SCHEMAS = Path(__file__).with_name("c_ascend_schemas.txt")
SCHEMAS_VARIABLE = "TORCH_NPU_EMULATOR_C_ASCEND_SCHEMAS"

_library: torch.library.Library | None = None


def read_schemas() -> list[str]:
    """The signatures of the installed release. Raises RuntimeError when the set-up has not made them."""
    path = Path(os.environ.get(SCHEMAS_VARIABLE) or SCHEMAS)
    try:
        return path.read_text().splitlines()
    except OSError as error:
        raise RuntimeError(
            f"the emulated NPU has no operator signatures of vLLM-Ascend ({error}); make them: "
            f"python {Path(__file__).with_name('extract.py')} VLLM_ASCEND_SDIST_OR_CHECKOUT {path}"
        ) from None


def register(schemas: Sequence[str] | None = None) -> None:
    """Define the operators, once. A signature that torch cannot read raises RuntimeError naming it."""
    global _library
    if _library is not None:
        return
    lines = read_schemas() if schemas is None else schemas
    library = torch.library.Library("_C_ascend", "FRAGMENT")
    for schema in lines:
        name = schema.partition("(")[0]
        try:
            library.define(schema)
        except RuntimeError as error:
            raise RuntimeError(f"_C_ascend: cannot define {schema!r}: {error}") from None
        kernel = KERNELS.get(name)
        key = "PrivateUse1" if "Tensor" in schema.partition("->")[0] else "CompositeExplicitAutograd"
        if kernel:
            library.impl(name, device_call(f"_C_ascend::{name}")(device_kernel(kernel)), key)
        else:
            library.impl(name, not_emulated(f"torch.ops._C_ascend.{name}"), key)
        if name in META:
            library.impl(name, META[name], "Meta")
    _library = library


class ExtensionFinder:
    """Finds the compiled extension, which is not there, as an empty module whose import registers the operators."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == EXTENSION else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        register()


def install() -> None:
    """Make the extension importable."""
    if not any(isinstance(finder, ExtensionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, ExtensionFinder())
