"""The scheduler that adapts gamma: the class which the host resolved, with three methods extended."""

from __future__ import annotations

import functools
import os
from typing import Any

from vllm_hust_vspec.control import make_controller
from vllm_hust_vspec.errors import HostMismatch, UserError, fail
from vllm_hust_vspec.host import ascend, records
from vllm_hust_vspec.host.carried_gamma import OUTPUT, CarriedGamma, host_carries_gamma
from vllm_hust_vspec.host.gamma_loop import GammaLoop
from vllm_hust_vspec.host.requirements import Attributes, Field, Method, Requirement
from vllm_hust_vspec.host.scope import Scope
from vllm_hust_vspec.host.steering import SteeringServer
from vllm_hust_vspec.settings import AdaptiveSettings, Settings

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_OWN_ATTRIBUTES = Attributes(
    _SCHEDULER, ("num_spec_tokens", "requests", "max_num_scheduled_tokens", "vllm_config", "has_unfinished_requests")
)
# What AdaptiveScheduler and GammaLoop read and extend, for the registry and the doctor. How gamma leaves the scheduler
# is asked apart (`scope`): a host may carry it, or the plugin brings it.
REQUIRES: tuple[Requirement, ...] = (
    Method(f"{_SCHEDULER}.schedule"),
    Method(f"{_SCHEDULER}.add_request", ("request",)),
    Method(f"{_SCHEDULER}._update_after_schedule", ("scheduler_output",)),
    Method(f"{_SCHEDULER}.update_from_output", ("scheduler_output", "model_runner_output")),
    Method(f"{_SCHEDULER}.shutdown"),
    *(
        Field(OUTPUT, name)
        for name in (
            "scheduled_spec_decode_tokens",
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_new_reqs",
            "scheduled_cached_reqs",
            "num_invalid_spec_tokens",
            "finished_req_ids",
        )
    ),
    Field("vllm.v1.core.sched.output:CachedRequestData", "resumed_req_ids"),
    Field("vllm.v1.outputs:ModelRunnerOutput", "sampled_token_ids"),
    Field("vllm.v1.outputs:ModelRunnerOutput", "req_id_to_index"),
    _OWN_ATTRIBUTES,
    Attributes(
        "vllm.v1.request:Request",
        ("num_computed_tokens", "num_tokens", "num_output_placeholders", "is_finished"),
    ),
)


class AdaptiveScheduler:
    """Mixed in before the host's scheduler class; see `adaptive_class`."""

    vspec_scope: Scope
    vspec_settings: Settings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        host: Any = self
        lost = _OWN_ATTRIBUTES.missing_on(self)
        if lost is not None:
            raise HostMismatch(f"this host does not fit: {lost}; needed to adapt gamma")
        adaptive = self.vspec_settings.adaptive
        if not adaptive.speculation:
            adaptive = adaptive.model_copy(update={"policy": "fixed"})
        try:
            self._vspec_start(host, adaptive)
        except UserError as error:
            fail(str(error))

    def _vspec_start(self, host: Any, adaptive: AdaptiveSettings) -> None:
        self.vspec = GammaLoop(
            method=self.vspec_scope.method,
            policy=adaptive.policy,
            max_gamma=host.num_spec_tokens,
            token_budget=host.max_num_scheduled_tokens,
            new_controller=functools.partial(make_controller, adaptive, max_gamma=host.num_spec_tokens),
            all_passes=ascend.drafts_in_one_graph(host.vllm_config),
            rests=self.vspec_scope.rests,
        )
        records.attach(self.vspec, host.vllm_config, adaptive)
        self._vspec_pads = host.vllm_config.compilation_config.cudagraph_mode.has_full_cudagraphs()
        path = self.vspec_settings.serve.steering_socket
        self._vspec_steering = SteeringServer(os.fspath(path), self.vspec) if path else None

    def add_request(self, request: Any) -> None:
        # GammaLoop skips outputs of steps that a preemption overtook; a host that marks none keeps their tokens.
        if not hasattr(request, "num_stale_output_tokens"):
            request.num_stale_output_tokens = 0
        super().add_request(request)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        # The host pads joining decode requests to 1 + num_spec_tokens, so that a full graph of that width still fits.
        # The width that fits is the one in force; without full graphs padding only costs.
        host: Any = self
        configured = host.num_spec_tokens
        host.num_spec_tokens = self.vspec.gamma if self._vspec_pads else 0
        try:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            host.num_spec_tokens = configured

    def _update_after_schedule(self, scheduler_output: Any) -> Any:
        # Before the host's own: the async scheduler sizes its placeholders by this field in there.
        if scheduler_output.total_num_scheduled_tokens:
            scheduler_output.num_spec_tokens_to_schedule = self.vspec.decide(self, scheduler_output)
        else:
            self.vspec.skip()
        return super()._update_after_schedule(scheduler_output)  # type: ignore[misc]

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        feedback = self.vspec.begin_update(self, scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        if feedback is not None:
            self.vspec.end_update(self, feedback, outputs)
        return outputs

    def shutdown(self) -> None:
        if self._vspec_steering is not None:
            self._vspec_steering.close()
        self.vspec.close()
        super().shutdown()  # type: ignore[misc]


def adaptive_class(resolved: type, scope: Scope, settings: Settings) -> type:
    """The scheduler class that the host resolved, extended; extending an extended class changes nothing."""
    if issubclass(resolved, AdaptiveScheduler):
        return resolved
    extensions = (AdaptiveScheduler,) if host_carries_gamma() else (AdaptiveScheduler, CarriedGamma)
    return type(
        f"Adaptive{resolved.__name__}",
        (*extensions, resolved),
        {"vspec_scope": scope, "vspec_settings": settings, "__module__": __name__},
    )
