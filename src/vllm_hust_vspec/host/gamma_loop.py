"""The loop between scheduler and controller: one decision a step, one outcome a step, in order.

It runs on the scheduler's path at every token. It reads the host's scheduler and its outputs, writes nothing in them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from vllm_hust_vspec.control import Decision, GammaController, StepContext, StepOutcome
from vllm_hust_vspec.host.gamma0.passes import DrafterPasses
from vllm_hust_vspec.host.keeper import Keeper
from vllm_hust_vspec.host.scope import MODEL_DRAFTERS
from vllm_hust_vspec.host.steps import Feedback, Step, outcome_of, verified_drafts
from vllm_hust_vspec.host.trace import Trace

logger = logging.getLogger("vllm.vspec")


class GammaLoop:
    """Decides gamma for a scheduler and learns from what its steps return.

    clock: seconds, monotonic; `new_controller` makes the controller anew when it is reset; `all_passes`: the drafter
    always runs as many passes as configured, however few of their tokens are wanted; `rests`: at gamma 0 it runs none,
    and makes up for it when speculation resumes.
    """

    def __init__(
        self,
        *,
        method: str,
        policy: str,
        max_gamma: int,
        token_budget: int,
        new_controller: Callable[[], GammaController],
        clock: Callable[[], float] = time.perf_counter,
        all_passes: bool = False,
        rests: bool = False,
    ) -> None:
        self.method = method
        self.policy = policy
        self.max_gamma = max_gamma
        self.token_budget = token_budget
        self.clock = clock
        self.pin: int | None = None
        self.gamma = 0
        self.trace: Trace | None = None
        self._keeper: Keeper | None = None
        self._passes = DrafterPasses(method in MODEL_DRAFTERS, max_gamma if all_passes else None, rests)
        self._new_controller = new_controller
        self._controller = new_controller()
        self._pending: deque[Step] = deque()
        self._asked: set[str] = set()
        self._idle = True
        self._last_update: float | None = None
        self._faults = 0
        self.gamma_histogram: Counter[int] = Counter()
        self.decisions: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()

    def use(self, new_controller: Callable[[], GammaController]) -> None:
        """Let another controller decide, from the next step on; steps in flight are not shown to it.

        What it learns is not saved: it is not the one that the options name.
        """
        self._keeper = None
        self._new_controller = new_controller
        self.reset()

    def reset(self) -> None:
        """Forget what was learnt."""
        controller = self._new_controller()
        for step in self._pending:
            step.pinned = True
        self._controller = controller

    def remember(self, keeper: Keeper) -> None:
        """Begin with what an earlier run learnt, and save from now on. Call it before the first step."""
        self._keeper = keeper
        keeper.restore(self._controller)

    def close(self) -> None:
        """Save and write what is left; the engine ends."""
        if self._keeper is not None and not self._faults:
            self._keeper.close(self._controller)
        if self.trace is not None:
            self.trace.close()

    def decide(self, scheduler: Any, output: Any) -> int:
        """Gamma of this non-empty step: how many tokens each request that samples in it drafts for its next one."""
        context, expected = self._read(scheduler, output)
        pin = self.pin
        gamma, reason, expected_goodput = (pin, "pinned", None) if pin is not None else self._ask(context)
        if not context.num_decodes:
            gamma = 0  # nobody drafts for a next step; a model drafter still runs once, to keep its KV whole
        else:
            self.gamma_histogram[gamma] += 1
            self.totals["switches"] += gamma != self.gamma
            self.gamma = gamma
        self.totals["steps"] += 1
        self.decisions[reason] += 1
        passes = self._passes.of(gamma, bool(context.num_decodes))
        pinned = pin is not None
        self._pending.append(
            Step(output, gamma, context, expected, self._idle, pinned, passes, reason, expected_goodput)
        )
        self._idle = False
        if self.method not in MODEL_DRAFTERS:
            self._remember_asked(scheduler, output, gamma)
        return gamma

    def _remember_asked(self, scheduler: Any, output: Any, gamma: int) -> None:
        """Keep who was asked to draft: a drafter that looks tokens up may offer none, and that is an outcome too.

        A model drafter always drafts. Requests that did not run in this step keep the drafts that they were given.
        """
        self._asked.difference_update(output.num_scheduled_tokens)
        self._asked.difference_update(output.finished_req_ids)
        if gamma:
            for request_id, tokens in output.num_scheduled_tokens.items():
                request = scheduler.requests[request_id]
                if request.num_computed_tokens + tokens >= request.num_tokens + request.num_output_placeholders:
                    self._asked.add(request_id)

    def skip(self) -> None:
        """An empty schedule: what comes after it was waited for, so its interval says nothing."""
        self._idle = not self._pending

    def begin_update(self, scheduler: Any, output: Any, runner_output: Any) -> Feedback | None:
        """Read a step's output before the scheduler consumes it. None where the step was never decided."""
        now = self.clock()
        if not any(step.output is output for step in self._pending):
            return None
        while self._pending[0].output is not output:
            cancelled = self._pending.popleft()
            self._observe(cancelled, outcome_of(cancelled, {}, 0, None))
        step = self._pending.popleft()
        interval = None if step.after_idle or self._last_update is None else now - self._last_update
        self._last_update = now
        return Feedback(step, verified_drafts(step.expected, scheduler, output, runner_output), interval)

    def end_update(self, scheduler: Any, feedback: Feedback, engine_outputs: Mapping[int, Any]) -> None:
        """Complete a step's outcome with the tokens that were kept, and show it to the controller."""
        committed = sum(len(out.new_token_ids) for group in engine_outputs.values() for out in group.outputs)
        outcome = outcome_of(feedback.step, feedback.verified, committed, feedback.interval_s)
        totals = self.totals
        totals["proposed"] += sum(outcome.proposed)
        totals["accepted"] += sum(outcome.accepted)
        totals["verifications"] += sum(1 for count in outcome.proposed if count)
        totals["committed_tokens"] += committed
        self._idle = not self._pending and not scheduler.has_unfinished_requests()
        self._observe(feedback.step, outcome)
        if self._keeper is not None and not self._faults and self._last_update is not None:
            self._keeper.after_step(self._controller, self._last_update, idle=self._idle)

    def counters(self) -> dict[str, Any]:
        """Cumulative counts since the engine started, and the controller's state, as JSON-able data."""
        return {
            "method": self.method,
            "policy": self.policy,
            "max_gamma": self.max_gamma,
            "gamma": self.gamma,
            "pin": self.pin,
            "faults": self._faults,
            "gamma_histogram": {str(gamma): count for gamma, count in sorted(self.gamma_histogram.items())},
            "decisions": dict(self.decisions),
            **{
                name: self.totals[name]
                for name in ("steps", "switches", "proposed", "accepted", "verifications", "committed_tokens")
            },
            "controller": self._controller.snapshot(),
        }

    def _read(self, scheduler: Any, output: Any) -> tuple[StepContext, list[str]]:
        """The step's context, and the requests whose drafts it verifies."""
        requests, scheduled, drafts = (
            scheduler.requests,
            output.num_scheduled_tokens,
            output.scheduled_spec_decode_tokens,
        )
        total = output.total_num_scheduled_tokens
        context = chunks = 0
        for request_id, tokens in scheduled.items():
            request = requests[request_id]
            computed = request.num_computed_tokens
            if computed + tokens < request.num_tokens + request.num_output_placeholders:
                chunks += 1
            else:
                context += computed
        prefill = 0
        if total > len(scheduled) + sum(map(len, drafts.values())):
            prefill = sum(n for request_id, n in scheduled.items() if n - len(drafts.get(request_id, ())) > 1)
        # The drafts of a request that joins or resumes are padding: nobody drafted them.
        fresh = {new.req_id for new in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
        expected = [request_id for request_id in drafts if request_id not in fresh]
        if self._asked:
            expected += [r for r in scheduled if r in self._asked and r not in drafts and r not in fresh]
        step = StepContext(
            num_decodes=len(scheduled) - chunks,
            num_prefill_tokens=prefill,
            context_tokens=context,
            token_budget=self.token_budget,
            verify_tokens=total - prefill,
        )
        return step, expected

    def _ask(self, context: StepContext) -> tuple[int, str, float | None]:
        try:
            decision: Decision = self._controller.decide(context)
            return min(max(decision.gamma, 0), self.max_gamma), decision.reason, decision.expected_goodput
        except Exception:
            self._fault("decide")
            return self.gamma, "fault", None

    def _observe(self, step: Step, outcome: StepOutcome) -> None:
        if self.trace is not None:
            self.trace.add(self._last_update or self.clock(), step.reason, step.goodput, outcome)
        if step.pinned:
            return
        try:
            self._controller.observe(outcome)
        except Exception:
            self._fault("observe")

    def _fault(self, where: str) -> None:
        """A broken controller pins gamma where it is; serving goes on."""
        self._faults += 1
        if self._faults == 1:
            logger.exception("vspec: the controller failed in %s; gamma is pinned at %d", where, self.gamma)
        self.pin = self.gamma
