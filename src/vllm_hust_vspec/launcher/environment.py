"""The variables that a run sets for vLLM and its processes."""

from collections.abc import Mapping
from pathlib import Path

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.host import Host
from vllm_hust_vspec.settings import Settings
from vllm_hust_vspec.settings.catalog import OPTIONS, PREFIX

OUR_PLUGIN = "vspec"
RAY_PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"


def build_environment(settings: Settings, host: Host, environ: Mapping[str, str]) -> dict[str, str]:
    """What is set on top of environ: the plugin switched on, its options, and what the host needs for them."""
    environment = {f"{PREFIX}ENABLED": "1", **settings.to_environment()}
    if "VLLM_PLUGINS" in environ:
        environment["VLLM_PLUGINS"] = _completed(environ["VLLM_PLUGINS"], (*host.plugins, OUR_PLUGIN))
    environment[RAY_PREFIXES] = _completed(environ.get(RAY_PREFIXES, ""), (PREFIX,))
    if settings.serve.device is not None:
        if host.kind not in ("ascend", "none"):
            device = settings.given["device"].named(OPTIONS["device"])
            raise UserError(f"{device} has no effect on this host ({host.describe()}); leave it out")
        environment["ASCEND_RT_VISIBLE_DEVICES"] = settings.serve.device.replace(" ", "")
    if host.kind == "cpu":
        environment |= _cpu(environ)
    return environment


def _completed(listed: str, wanted: tuple[str, ...]) -> str:
    """A comma-separated list with what is missing from it added at its end."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return ",".join([*names, *(name for name in wanted if name not in names)])


def _cpu(environ: Mapping[str, str]) -> dict[str, str]:
    """Numba's threads fight OpenMP's over the cores, and Numba's OpenMP layer sets OpenMP to Numba's one thread for the
    whole engine; and vLLM would take its KV cache out of all memory there is."""
    wanted = {
        "NUMBA_NUM_THREADS": "1",
        "NUMBA_THREADING_LAYER": "workqueue",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gib(_available_gib())),
    }
    return {name: value for name, value in wanted.items() if name not in environ}


def kv_cache_gib(available: float) -> int:
    """A quarter of the memory at hand in GiB, at least 1 and at most 16."""
    return max(1, min(16, int(available / 4)))


def _available_gib() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20
    except (OSError, ValueError, IndexError, StopIteration):
        return 4.0
