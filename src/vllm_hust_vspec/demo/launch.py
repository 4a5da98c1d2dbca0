"""How the demo's two servers are started: by our launcher, alike but for speculation."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_hust_vspec.demo.api import MODEL
from vllm_hust_vspec.demo.cores import usable_cores
from vllm_hust_vspec.demo.drafter import Drafter
from vllm_hust_vspec.demo.plan import CONCURRENCY, MAX_GAMMA
from vllm_hust_vspec.demo.ports import HOST
from vllm_hust_vspec.demo.precision import serving_dtype
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import check_start, make_plan
from vllm_hust_vspec.settings import Settings

_SPECULATIVE = "--speculative-config"
_OURS = ("HUST_VSPEC_", "HUST_SPECSLO_", "HUST_SPECASCEND_")
_MOST_THREADS = 8
_EXTRA = ("--disable-uvicorn-access-log",)


@dataclass(frozen=True, slots=True)
class Start:
    """argv and complete environment of a server."""

    command: list[str]
    environment: dict[str, str]


def starts(
    model: Path, drafter: Drafter, ports: tuple[int, int], socket: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Start, Start]:
    """Target-only on the first port, and adaptive speculation with this drafter and a steering socket on the second.

    Raises UserError where this host cannot start them.
    """
    base = _environment(environ)
    settings = [Settings.load(flags=_flags(model, drafter, port, socket), environ={}) for port in ports]
    plain, adaptive = (make_plan(one, base, extra=_EXTRA) for one in settings)
    if adaptive.host.kind != "cpu":
        raise UserError(
            f"the demo runs on vLLM's CPU build, and this Python has {adaptive.host.describe()}; "
            "./run.sh demo makes the environment that it needs"
        )
    for plan in (plain, adaptive):
        check_start(plan, base)
    inert = {name: value for name, value in plain.environment.items() if not name.startswith(_OURS)}
    return (
        Start(_without_speculation(plain.command), base | inert),
        Start(adaptive.command, base | adaptive.environment),
    )


def _flags(model: Path, drafter: Drafter, port: int, socket: Path) -> dict[str, object]:
    named = {} if drafter.directory is None else {"draft_model": str(drafter.directory)}
    return {
        **named,
        "method": drafter.method,
        "target_model": str(model),
        "served_model_name": MODEL,
        "gamma": MAX_GAMMA,
        "dtype": serving_dtype(),
        "graph_mode": "eager",
        "max_model_len": 1024,
        "max_num_seqs": max(CONCURRENCY),
        "max_num_batched_tokens": 2048,
        "host": HOST,
        "port": port,
        "adaptive_policy": "online",
        "adaptive_memory": False,  # every demo starts cold
        "steering_socket": str(socket),
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's, less options of ours that would change what is compared, plus what makes a small model fast on CPU.

    One process for engine and worker, and OpenMP on all cores unbound: measured, a third faster than vLLM's defaults.
    OpenMP threads that spin long at a barrier stop each other where the cores are not all ours: ten times slower.
    Numba's OpenMP layer, which the n-gram drafter would load, sets OpenMP to Numba's one thread for the whole engine:
    the speculative server alone would then run on one core. Its workqueue layer leaves OpenMP alone.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    threads = {
        "OMP_NUM_THREADS": str(min(usable_cores(), _MOST_THREADS)),
        "GOMP_SPINCOUNT": "1000",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "NUMBA_THREADING_LAYER": "workqueue",
    }
    return (
        threads
        | kept
        | {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
    )


def _without_speculation(command: list[str]) -> list[str]:
    at = command.index(_SPECULATIVE)
    return command[:at] + command[at + 2 :]
