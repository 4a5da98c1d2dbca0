"""Engines on the emulated NPU: which set-ups there are, and how the drafter's passes in them are counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines import Engine, engine

# Half of the device is plenty; earlier engines of the process may still hold some of the rest, and vLLM does not start
# where less is free than it may use.
OPTIONS: dict[str, Any] = {"block_size": 128, "kv_cache_memory_bytes": 64 << 20, "gpu_memory_utilization": 0.5}
# The emulated device has no compiler of its own, so what rewrites compiled graphs for it stays off.
_GRAPHS: dict[str, Any] = {
    "enforce_eager": False,
    "additional_config": {
        "ascend_compilation_config": dict.fromkeys(
            (
                "enable_npugraph_ex",
                "fuse_norm_quant",
                "fuse_qknorm_rope",
                "fuse_allreduce_rms",
                "fuse_muls_add",
            ),
            False,
        )
    },
}
# Widths of verification that are captured: multiples of 1 + MAX_GAMMA for the uniform ones, others for the mixed.
_CAPTURED = [1, 2, 4, 5, 8, 10, 15, 20, 24, 30, 40]
EVERY_CASE = (
    "greedy",
    "chunked-prefill",
    "many",
    "mixed-sampling",
    "structured",
    "stop-strings",
    "several-completions",
)
WIDTH_CASES = ("greedy", "chunked-prefill", "many")


@dataclass(frozen=True)
class Setup:
    """What one engine runs. graph: a cudagraph_mode, None for eager; skilled: its drafts are often accepted."""

    target: str
    method: str
    drafter: str | None
    asynchronous: bool = False
    graph: str | None = None
    skilled: bool = True
    cases: tuple[str, ...] = EVERY_CASE

    @property
    def scheduling(self) -> str:
        return "async" if self.asynchronous else "sync"

    @property
    def captured_drafter(self) -> bool:
        """Whether all passes of the drafter are captured in one graph, so that each step runs all of them."""
        return self.method.startswith("eagle") and self.graph is not None and "FULL" in self.graph

    @contextlib.contextmanager
    def start(self, models: Path, **options: Any) -> Iterator[Engine]:
        graphs: dict[str, Any] = {}
        if self.graph is not None:
            compilation = {"cudagraph_mode": self.graph, "cudagraph_capture_sizes": _CAPTURED}
            graphs = _GRAPHS | {"compilation_config": compilation}
        with engine(
            models / self.target,
            method=self.method,
            drafter=models / self.drafter if self.drafter else None,
            asynchronous=self.asynchronous,
            **(OPTIONS | graphs | options),
        ) as started:
            yield started
        if self.graph is not None:
            _forget_graphs()


def _forget_graphs() -> None:
    """Let another engine of this process capture: vLLM-Ascend keeps one engine's graphs, and never lets go of them."""
    from vllm_ascend.compilation import acl_graph

    for name in ("_graph_params", "_draft_graph_params", "_draft_graph_prefill_params"):
        setattr(acl_graph, name, None)


_FEW = ("greedy", "chunked-prefill", "many", "structured")
SETUPS = {
    "draft_model-sync": Setup("target", "draft_model", "draft_noisy"),
    "draft_model-async": Setup("target", "draft_model", "draft_noisy", True),
    "draft_model-piecewise": Setup("target", "draft_model", "draft_noisy", graph="PIECEWISE", cases=_FEW),
    "draft_model-full": Setup("target", "draft_model", "draft_noisy", True, "FULL_DECODE_ONLY", cases=_FEW),
    "eagle-sync": Setup("target_soft", "eagle", "eagle"),
    "eagle-async": Setup("target_soft", "eagle", "eagle", True),
    "eagle-piecewise-async": Setup("target_soft", "eagle", "eagle", True, "PIECEWISE", cases=_FEW),
    "eagle-full-async": Setup("target_soft", "eagle", "eagle", True, "FULL_DECODE_ONLY", cases=_FEW),
    "eagle-full-and-piecewise": Setup("target_soft", "eagle", "eagle", graph="FULL_AND_PIECEWISE", cases=_FEW),
    "eagle3-async": Setup("target", "eagle3", "eagle3", True, skilled=False, cases=_FEW),
    "ngram-sync": Setup("target_soft", "ngram", None),
    "ngram-full-and-piecewise": Setup("target_soft", "ngram", None, graph="FULL_AND_PIECEWISE", cases=_FEW),
}


@dataclass
class Passes:
    """How often the drafter's model ran, and for how many drafts it was asked, since the last `clear`."""

    count: int = 0

    def clear(self) -> None:
        self.count = 0


@contextlib.contextmanager
def counted_passes(started: Engine) -> Iterator[Passes]:
    """Count the passes of a model drafter that is not captured in a graph."""
    passes = Passes()

    def count(*_: Any) -> None:
        passes.count += 1

    hook = started.runner.drafter.get_model().register_forward_pre_hook(count)
    try:
        yield passes
    finally:
        hook.remove()


@dataclass
class Tally:
    """What a set-up's cases add up to, for the table that the run prints."""

    drafts: int = 0
    accepted: int = 0
    wrong: list[str] = field(default_factory=list)
