"""vLLM-Ascend's own schedulers adapt as well: the class that the host resolves is the one extended."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, answers
from engines import at_random
from npu_engines import OPTIONS, Setup

# scheduler class, the setting that selects it, whether it runs asynchronously
OWN = {
    "balance": ("vllm_ascend.patch.platform.patch_balance_schedule:BalanceScheduler", {}, False),
    "dynamic-batch": (
        "vllm_ascend.core.scheduler_dynamic_batch:SchedulerDynamicBatch",
        {"SLO_limits_for_dynamic_batch": 100},
        False,
    ),
    "batch-jobs": (
        "vllm_ascend.core.batch_job_aware_scheduler:BatchJobAwareScheduler",
        {"batch_job_sched_config": {"enabled": True}},
        False,
    ),
    "short-requests-first": (
        "vllm_ascend.core.short_request_first_scheduler:ShortRequestFirstAsyncScheduler",
        {"short_request_first_config": {"enabled": True}},
        True,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_the_hosts_own_scheduler_adapts(name: str, models: Path) -> None:
    path, settings, asynchronous = OWN[name]
    module, _, class_name = path.partition(":")
    if find_spec(module) is None:
        pytest.skip(f"this vLLM-Ascend has no {class_name}")
    unknown = _not_taken(getattr(import_module(module), class_name))
    if unknown:
        pytest.skip(f"{class_name} does not start on this vLLM, with or without the plugin: it takes no {unknown}")
    want = answers(models, "target", **OPTIONS)["many"]
    options: dict[str, Any] = {"additional_config": settings} if settings else {}
    setup = Setup("target", "draft_model", "draft_noisy", asynchronous)
    with setup.start(models, **options) as started:
        assert [c.__name__ for c in type(started.scheduler).__mro__ if c.__module__ == module] == [class_name]
        assert type(started.scheduler).__name__ == f"Adaptive{class_name}"
        script = started.drive(at_random(7))
        assert CASES["many"].run(started, want["prompts"]) == want["tokens"]
    assert len(set(script.decided)) > 2
    assert script.acceptance > 0.05


def _not_taken(scheduler: type) -> str:
    """The first argument that vLLM gives to every scheduler and this one does not take, or an empty string."""
    from vllm.v1.core.sched.scheduler import Scheduler

    given, taken = (inspect.signature(kind.__init__).parameters for kind in (Scheduler, scheduler))
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
        return ""
    return next((name for name in given if name not in taken), "")
