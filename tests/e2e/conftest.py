"""Engines run in the test's process, so that gamma can be driven and counted; the models are made once a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.update(
    HUST_VSPEC_ENABLED="1",
    HUST_VSPEC_ADAPTIVE_MEMORY="0",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_LOGGING_LEVEL="INFO",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    NUMBA_NUM_THREADS="1",
)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny models, shared by all workers of a run."""
    from tiny_models import built_once

    shared = tmp_path_factory.getbasetemp()
    return built_once(shared.parent if os.environ.get("PYTEST_XDIST_WORKER") else shared)


@pytest.fixture(scope="session")
def references(models: Path) -> Callable[[str], Any]:
    """The target's own answers to every case, computed once a run for each target and kept in a file."""
    from cases import answers

    return lambda target: answers(models, target, block_size=32)
