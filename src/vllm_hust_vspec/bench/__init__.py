"""Comparing and simulating controllers: `vllm-hust-vspec-bench`."""

import os
import sys

from vllm_hust_vspec.errors import run


def main() -> None:
    """The console script. Its processes are its parallelism, so that the linear algebra in each takes one thread."""
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from vllm_hust_vspec.bench.cli import bench

    run(lambda: bench(sys.argv[1:]))
