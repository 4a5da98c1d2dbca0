"""Which precision serves fastest on this processor: bf16 where it computes in it, else fp32."""

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_FLAGS = {"flags", "Features"}
# vLLM's CPU build multiplies bf16 well with these; elsewhere it unpacks every weight first, and a batch of 32 requests
# was measured four times slower than in fp32.
_FAST_BF16 = {"avx512f", "amx_bf16", "bf16"}


def serving_dtype(cpuinfo: Path = _CPUINFO) -> str:
    """bfloat16 or float32; bfloat16, as the checkpoint is, where the processor does not tell what it can do."""
    flags = _flags(cpuinfo)
    return "float32" if flags and not flags & _FAST_BF16 else "bfloat16"


def processor(cpuinfo: Path = _CPUINFO) -> str:
    """The processor's name, as precisely as the system knows it."""
    return _first(cpuinfo, {"model name"}) or platform.processor() or platform.machine()


def _flags(cpuinfo: Path) -> set[str]:
    return set(_first(cpuinfo, _FLAGS).split())


def _first(cpuinfo: Path, names: set[str]) -> str:
    """The first line that has one of these names: what follows it; empty where there is none."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next((value.strip() for name, _, value in (x.partition(":") for x in lines) if name.strip() in names), "")
