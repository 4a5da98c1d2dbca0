"""Changes to host modules while they are imported."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import torch_npu  # noqa: F401
from torch_npu import import_hooks


def test_a_hook_sees_the_module_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import_hooks.install()
    (tmp_path / "some_host_module.py").write_text("HAS_TRITON = True\nVALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(import_hooks.HOOKS, "some_host_module", import_hooks.use_torch_npu_rotary)
    module = importlib.import_module("some_host_module")
    assert module.HAS_TRITON is False
    assert module.VALUE == 3


def test_the_rotary_hook_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm_ascend.ops.rotary_embedding")
    monkeypatch.setenv(import_hooks.KEEP_TRITON_ROTARY, "1")
    import_hooks.use_torch_npu_rotary(module, lambda module: setattr(module, "HAS_TRITON", True))
    assert module.HAS_TRITON is True


def test_the_rotary_hook_tells_when_it_no_longer_fits() -> None:
    with pytest.raises(RuntimeError, match="HAS_TRITON"):
        import_hooks.use_torch_npu_rotary(ModuleType("vllm_ascend.ops.rotary_embedding"), lambda module: None)


@pytest.mark.parametrize("loaded", [True, False])
def test_formulas_of_torchvision_are_attached_where_its_operators_are(
    monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    extension = ModuleType("torchvision.extension")
    extension._has_ops = lambda: loaded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision.extension", extension)
    ran: list[ModuleType] = []
    import_hooks.register_only_loaded_operators(ModuleType("torchvision._meta_registrations"), ran.append)
    assert bool(ran) is loaded


def test_torchvision_imports_beside_a_cpu_torch() -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("no torchvision in this environment")
    code = "import torch_npu; from torchvision.transforms.v2 import functional; print(functional.resize.__name__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "resize\n", result.stderr
