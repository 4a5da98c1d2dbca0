"""Running a piece of Python in a clean process, with the plugin on or off."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

BASE = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    def ledger(self) -> list[str]:
        """The lines that vSpec logged, from `vspec` on."""
        lines = (self.out + self.err).splitlines()
        return [line[line.index("vspec 0") :] for line in lines if "vspec 0" in line]


def run(code: str, *, enabled: bool = True, timeout: float = 240, **environment: str) -> Ended:
    """Run code in a process of its own that inherits no vSpec or vLLM variable."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HUST_", "VLLM_", "VSPEC_", "SPECSLO_"))}
    if enabled:
        clean["HUST_VSPEC_ENABLED"] = "1"
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=clean | BASE | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
