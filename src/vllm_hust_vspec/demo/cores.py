"""How many cores this process may really use: affinity, and the container's quota."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
        cores = min(cores, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError):  # no cgroup v2, or no limit ("max")
        pass
    return max(cores, 1)
