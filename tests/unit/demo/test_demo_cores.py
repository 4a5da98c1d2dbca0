import os
from pathlib import Path

import pytest

from vllm_hust_vspec.demo.cores import usable_cores


@pytest.mark.parametrize(("text", "limit"), [("150000 100000", 2), ("100000 100000", 1), ("20000 100000", 1)])
def test_a_containers_quota_bounds_the_cores(tmp_path: Path, text: str, limit: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == min(limit, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("text", ["max 100000", "", "rubbish"])
def test_without_a_quota_the_affinity_counts(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))
