"""Real vLLM engines in this process, on tiny models, with gamma driven by a script."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vllm_hust_vspec.control import Decision, StepContext, StepOutcome

MAX_GAMMA = 4
TIE = 1e-3  # logprob distance under which two tokens count as a near tie; fp32 noise between widths is about 1e-5


@dataclass
class Scripted:
    """A controller that plays a schedule and keeps what it is shown.

    decided: each step's gamma as the workers get it; without a request that samples, nobody drafts.
    """

    schedule: Callable[[int], int]
    contexts: list[StepContext] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)
    outcomes: list[StepOutcome] = field(default_factory=list)

    def decide(self, step: StepContext) -> Decision:
        gamma = self.schedule(len(self.contexts))
        self.contexts.append(step)
        self.decided.append(gamma if step.num_decodes else 0)
        return Decision(gamma, "scripted")

    def observe(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError

    @property
    def acceptance(self) -> float:
        """Accepted drafts over proposed ones."""
        return sum(sum(o.accepted) for o in self.outcomes) / max(1, sum(sum(o.proposed) for o in self.outcomes))


def cycling(step: int) -> int:
    """0, 1, … max, 0, …"""
    return step % (MAX_GAMMA + 1)


def at_random(seed: int) -> Callable[[int], int]:
    draw = random.Random(seed)
    return lambda step: draw.randint(0, MAX_GAMMA)


class Engine:
    def __init__(self, llm: Any) -> None:
        self.llm = llm

    @property
    def scheduler(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def runner(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner

    def drive(self, schedule: Callable[[int], int]) -> Scripted:
        """From now on gamma follows the schedule, by the number of the step."""
        script = Scripted(schedule)
        self.scheduler.vspec.use(lambda: script)
        return script

    def generate(self, prompts: Sequence[str | list[int]], params: Any) -> list[list[list[int]]]:
        """Token ids of each prompt's completions."""
        return [[list(completion.token_ids) for completion in output.outputs] for output in self._run(prompts, params)]

    def texts(self, prompts: Sequence[str | list[int]], params: Any) -> list[list[str]]:
        """The text of each prompt's completions."""
        return [[completion.text for completion in output.outputs] for output in self._run(prompts, params)]

    def _run(self, prompts: Sequence[str | list[int]], params: Any) -> Any:
        inputs = [p if isinstance(p, str) else {"prompt_token_ids": p} for p in prompts]
        return self.llm.generate(inputs, params, use_tqdm=False)


@contextlib.contextmanager
def engine(
    model: Path, *, method: str | None = None, drafter: Path | None = None, asynchronous: bool = False, **options: Any
) -> Iterator[Engine]:
    """A vLLM engine in this process. method: of speculation, None for target-only."""
    from vllm import LLM

    spec: dict[str, Any] | None = None
    if method is not None:
        spec = {"method": method, "num_speculative_tokens": MAX_GAMMA}
        if method == "ngram":
            spec |= {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        else:
            spec["model"] = str(drafter)
    from vllm.platforms import current_platform

    with async_on_cpu() if asynchronous and current_platform.is_cpu() else contextlib.nullcontext():
        # vLLM looks through every module for kernels and trips over a lazy object of llvmlite's, which an earlier
        # engine with ngram drafting has imported.
        hidden = sys.modules.pop("llvmlite.binding.ffi", None)
        llm = LLM(
            model=str(model),
            **{
                "dtype": "float32",
                "max_model_len": 512,
                "max_num_seqs": 8,
                "max_num_batched_tokens": 128,
                "enforce_eager": True,
                "seed": 0,
                "enable_prefix_caching": False,
                "disable_log_stats": False,
                "speculative_config": spec,
                "async_scheduling": asynchronous,
            }
            | options,
        )
        if hidden is not None:
            sys.modules["llvmlite.binding.ffi"] = hidden
        try:
            yield Engine(llm)
        finally:
            llm.llm_engine.engine_core.shutdown()
            del llm
            from vllm.distributed import cleanup_dist_env_and_memory

            cleanup_dist_env_and_memory()
            gc.collect()


@contextlib.contextmanager
def async_on_cpu() -> Iterator[None]:
    """Let the real AsyncScheduler run on the CPU backend.

    The platform switches it off, and the runner's asynchronous path asks for streams and events; all copies on a CPU
    are synchronous, so events that do nothing are right.
    """
    from vllm.platforms.cpu import CpuPlatform

    class Event:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def record(self, *args: Any) -> None: ...
        def synchronize(self) -> None: ...
        def wait(self, *args: Any) -> None: ...
        def query(self) -> bool:
            return True

    class Stream:
        device = torch.device("cpu")
        cuda_stream = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def wait_stream(self, *args: Any) -> None: ...
        def wait_event(self, *args: Any) -> None: ...
        def synchronize(self) -> None: ...
        def record_event(self, event: Any = None) -> Any:
            return event or Event()

    @contextlib.contextmanager
    def on_stream(*args: Any, **kwargs: Any) -> Iterator[None]:
        yield

    before = CpuPlatform.__dict__["check_and_update_config"]

    def keep_async(cls: Any, vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        before.__func__(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = wanted

    replaced: list[tuple[Any, str, Any]] = [
        (CpuPlatform, "check_and_update_config", classmethod(keep_async)),
        (torch, "Event", Event),
        (torch.cuda, "Event", Event),
        (torch.cuda, "Stream", Stream),
        (torch.cuda, "stream", on_stream),
        (torch.cuda, "current_stream", lambda *args, **kwargs: Stream()),
    ]
    kept = [(owner, name, vars(owner)[name]) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
