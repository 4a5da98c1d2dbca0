"""The contract of control/: names, fields, defaults, and what make_controller gives and refuses."""

import dataclasses
import logging

import pytest

from vllm_hust_vspec.control import (
    REASONS,
    Decision,
    GammaController,
    StepContext,
    StepOutcome,
    make_controller,
)
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import AdaptiveSettings

FIELDS = {
    StepContext: ("num_decodes", "num_prefill_tokens", "context_tokens", "token_budget", "verify_tokens"),
    StepOutcome: (
        "gamma", "num_decodes", "num_prefill_tokens", "context_tokens", "proposed", "accepted", "committed_tokens",
        "interval_s", "verify_tokens", "draft_passes", "request_ids",
    ),
    Decision: ("gamma", "reason", "expected_goodput", "limits"),
}  # fmt: skip


def controller(max_gamma: int = 4, **options: object) -> GammaController:
    return make_controller(AdaptiveSettings(**options), max_gamma=max_gamma, seed=0)


@pytest.mark.parametrize("kind", FIELDS)
def test_contract_has_exactly_these_fields_frozen_and_slotted(kind):
    assert tuple(field.name for field in dataclasses.fields(kind)) == FIELDS[kind]
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


def test_contract_defaults():
    assert StepContext(1, 0, 8, 64).verify_tokens == 0
    outcome = StepOutcome(1, 1, 0, 8, (), (), 1, None)
    assert (outcome.verify_tokens, outcome.draft_passes, outcome.request_ids) == (0, None, ())
    assert Decision(1, "hold") == Decision(1, "hold", None, None)


@pytest.mark.parametrize("options", [{"policy": "fixed"}, {"policy": "online", "speculation": False}])
def test_fixed_drafts_max_gamma(options):
    assert controller(3, **options).decide(StepContext(8, 0, 80, 8192)) == Decision(3, "fixed")


def test_online_starts_at_the_smallest_gamma():
    assert controller().decide(StepContext(8, 0, 80, 8192)).gamma == 0
    assert controller(min_gamma=2).decide(StepContext(8, 0, 80, 8192)).gamma == 2


@pytest.mark.parametrize(
    ("options", "max_gamma", "names"),
    [
        ({"policy": "profile"}, 4, "needs --adaptive-profile"),
        ({"min_gamma": 5}, 4, "--adaptive-min-gamma"),
        ({}, -1, "--gamma"),
    ],
)
def test_what_no_controller_can_do_is_refused_in_one_line(options, max_gamma, names):
    with pytest.raises(UserError, match=names) as refused:
        controller(max_gamma, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("policy", ["fixed", "online"])
def test_gamma_is_cut_to_the_token_budget(policy):
    drives = controller(4, policy=policy, min_gamma=1)
    decision = drives.decide(StepContext(32, 0, 320, token_budget=100))
    assert decision.gamma <= 2
    assert 32 * (decision.gamma + 1) <= 100


@pytest.mark.parametrize("policy", ["fixed", "online"])
def test_a_step_that_no_gamma_fits_gets_the_smallest_and_one_warning(policy, caplog):
    drives = controller(4, policy=policy, min_gamma=1)
    with caplog.at_level(logging.WARNING, logger="vllm_hust_vspec"):
        decisions = [drives.decide(StepContext(32, 0, 320, token_budget=40)) for _ in range(3)]
    assert decisions == [Decision(1, "infeasible")] * 3
    warnings = [record.getMessage() for record in caplog.records if "max_num_batched_tokens=40" in record.getMessage()]
    assert len(warnings) == 1, f"said {len(warnings)} times"


def test_reasons_are_a_closed_set():
    assert set(REASONS) == {"fixed", "idle", "hold", "switch", "climb", "probe", "infeasible", "fault"}
