"""The profile policy: it starts from a file, and what it measures corrects it."""

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import PROFILES, SURFACES, Engine, always, best_fixed

from vllm_hust_vspec.control import REASONS, StepContext, StepOutcome, make_controller
from vllm_hust_vspec.control.profile_acceptance import STALE, ProfileAcceptance
from vllm_hust_vspec.control.profile_time import ProfileTime, interpolated
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import AdaptiveSettings
from vllm_hust_vspec.settings.profile_file import ProfileFile, read_profile

# Times of the simulator's surface "npu", as a profile states them.
NPU = {
    "schema_version": 1,
    "max_speculative_tokens": 4,
    "target": {"alpha_ms_per_context_token": 1e-4, "gamma_ms_per_batched_token": 0.08, "delta_ms": 22.0},
    "draft": {"alpha_ms_per_context_token": 0.0, "gamma_ms_per_batched_token": 0.006, "delta_ms": 2.2},
}
BUSY = StepContext(16, 0, 1600, 8192, 16)


@pytest.fixture
def controller(tmp_path):
    def make(profile=None, max_gamma=4, **options):
        path = tmp_path / "p.json"
        path.write_text(json.dumps({**NPU, **(profile or {})}))
        return make_controller(AdaptiveSettings(policy="profile", profile=path, **options), max_gamma=max_gamma)

    return make


def serve(controller, steps, *, accept=1.0, batch=16, seconds=lambda gamma: 0.03, requests=None):
    """Run steps in which a share of the drafts is accepted, whole requests at a time. Returns the gammas."""
    gammas, before = [], 0
    for _ in range(steps):
        gamma = controller.decide(StepContext(batch, 0, 100 * batch, 8192, batch * (1 + before))).gamma
        hits = round(batch * accept)
        accepted = (before,) * hits + (0,) * (batch - hits)
        controller.observe(
            StepOutcome(
                gamma,
                batch,
                0,
                100 * batch,
                (before,) * batch if before else (),
                accepted if before else (),
                batch,
                seconds(gamma),
                batch * (1 + before),
                gamma,
            )
        )
        gammas.append(gamma)
        before = gamma
    return gammas


def test_it_starts_at_the_files_gamma(controller):
    assert controller().decide(BUSY).gamma == 4
    assert controller({"initial_gamma": 2}).decide(BUSY).gamma == 2
    assert controller({"initial_gamma": 4}, max_gamma=3).decide(BUSY).gamma == 3


def test_a_profile_for_fewer_tokens_than_gamma_is_refused(controller):
    with pytest.raises(UserError, match="max_speculative_tokens 4, below gamma 5"):
        controller(max_gamma=5)


def test_predicted_times_follow_the_documented_equation():
    profile = ProfileFile.model_validate(NPU | {"per_gamma_overhead_ms": {1: 1.0, 3: 5.0}})
    times = ProfileTime(profile, 4, calibrate=True, weight=0.2)
    for gamma, overhead in enumerate((1.0, 1.0, 3.0, 5.0, 5.0)):
        target = 1e-4 * 1600 + 0.08 * 16 * (gamma + 1) + 22.0
        draft = sum(0.006 * 16 + 2.2 for _ in range(gamma))
        assert times.steady(gamma, 16, 1600) == pytest.approx((target + draft + overhead) / 1e3)


def test_parallel_drafting_is_one_pass():
    profile = ProfileFile.model_validate(NPU | {"draft_parallel": True})
    times = ProfileTime(profile, 4, calibrate=True, weight=0.2)
    assert times.steady(4, 16, 0) == pytest.approx((0.08 * 80 + 22.0 + 0.006 * 64 + 2.2) / 1e3)


@given(st.dictionaries(st.integers(0, 16), st.floats(0, 100), min_size=1), st.integers(0, 16))
def test_interpolation_stays_between_the_anchors_and_meets_them(table, at):
    value = interpolated(table, at)
    assert min(table.values()) - 1e-9 <= value <= max(table.values()) + 1e-9
    assert at not in table or value == pytest.approx(table[at])


def test_goodput_decides_when_the_drafts_are_poor(controller):
    gammas = serve(controller(), 200, accept=0.0)
    assert gammas[-1] == 0
    assert all(abs(before - after) <= 1 for before, after in itertools.pairwise(gammas))


def test_anchors_hold_until_acceptance_is_trusted_and_are_overridden_then(controller):
    anchored = controller(
        {"batch_gamma_policy": {"8": 4, "16": 1, "64": 0}, "initial_gamma": 1}, min_observations=16 * 20
    )
    gammas = serve(anchored, 120, accept=1.0)
    assert set(gammas[:20]) == {1}
    assert gammas[-1] == 4, "good drafts at the profile's times are worth all four"


@pytest.mark.parametrize(("batch", "gamma"), [(1, 4), (8, 4), (9, 1), (16, 1), (17, 2), (64, 2), (500, 2)])
def test_the_anchor_is_that_of_the_smallest_batch_as_large(controller, batch, gamma):
    anchored = controller({"batch_gamma_policy": {"8": 4, "16": 1, "64": 2}}, control_interval=1, max_gamma_step=4)
    assert anchored.decide(StepContext(batch, 0, 0, 8192)).gamma == gamma


@pytest.mark.parametrize("needed", [1, 32, 200])
def test_min_observations_is_what_trust_takes(needed):
    acceptance = ProfileAcceptance(2, 0.7, 0.1, needed)
    for _ in range(needed - 1):
        acceptance.observe({(2, 0): 1})
    assert acceptance.rates == [0.7, 0.7]
    assert not acceptance.trusted
    acceptance.observe({(2, 0): 1})
    assert acceptance.trusted
    assert acceptance.rates[0] < 0.05
    assert acceptance.rates[1] == 0.7, "no trial reached the second position"


def test_a_position_that_nobody_tests_any_more_opens_again_ever_more_rarely():
    acceptance = ProfileAcceptance(1, 0.7, 0.1, 8)
    opened = []
    for decision in range(8 * STALE):
        if acceptance.rates == [0.7]:
            opened.append(decision)
            acceptance.observe({(1, 0): 8})
        acceptance.pass_over()
    gaps = [b - a for a, b in itertools.pairwise(opened)]
    assert gaps == [STALE, 2 * STALE, 4 * STALE]


def test_ewma_weight_sets_how_fast_acceptance_follows():
    rates = []
    for weight in (0.05, 0.5):
        acceptance = ProfileAcceptance(1, 0.7, weight, 8)
        acceptance.observe({(1, 1): 1000})
        acceptance.observe({(1, 0): 8})
        rates.append(acceptance.rates[0])
    assert rates[0] == pytest.approx(0.95)
    assert rates[1] == pytest.approx(0.5)


def measured(**options):
    profile = ProfileFile.model_validate(NPU)
    times = ProfileTime(profile, 2, **({"calibrate": True, "weight": 0.2} | options))
    base = times.steady(1, 16, 0)
    for _ in range(40):
        times.observe(1, batch=16, context=0, verify=32, passes=1, prefill=0, seconds=1.5 * base)
    return times, base


def test_latency_calibration_corrects_a_gamma_and_lends_its_factor_to_unmeasured_ones():
    times, base = measured()
    assert times.steady(1, 16, 0) == pytest.approx(1.5 * base)
    assert times.corrected == pytest.approx([1.5, 1.5, 1.5])
    for _ in range(40):
        times.observe(2, batch=16, context=0, verify=48, passes=2, prefill=0, seconds=0.5)
    assert times.corrected[2] > 5
    assert times.corrected[1] == pytest.approx(1.5)


def test_latency_calibration_can_be_switched_off():
    times, base = measured(calibrate=False)
    assert times.steady(1, 16, 0) == base


def test_latency_ewma_weight_sets_how_fast_a_correction_moves():
    factors = []
    for weight in (0.05, 1.0):
        times, base = measured(weight=weight)
        times.observe(1, batch=16, context=0, verify=32, passes=1, prefill=0, seconds=base)
        factors.append(times.corrected[1])
    assert factors[0] > 1.4
    assert factors[1] == pytest.approx(1.0)


def test_one_stall_hardly_moves_a_correction():
    times, base = measured()
    times.observe(1, batch=16, context=0, verify=32, passes=1, prefill=0, seconds=100 * base)
    assert times.corrected[1] < 1.8


def test_control_interval_hysteresis_and_step_bind(controller):
    def changes(**options):
        gammas = serve(controller(**options), 60, accept=0.0)
        return [at for at in range(1, len(gammas)) if gammas[at] != gammas[at - 1]], gammas

    at, gammas = changes(control_interval=10)
    assert at
    assert all(b - a >= 10 for a, b in itertools.pairwise(at))
    for step in (1, 4):
        at, gammas = changes(max_gamma_step=step)
        assert max(abs(b - a) for a, b in itertools.pairwise(gammas)) == step
    at, gammas = changes(hysteresis=50.0)
    assert gammas.count(4) > 50, "only looks at a neighbour"


def test_min_gamma_bounds_it_from_below(controller):
    assert serve(controller(min_gamma=2), 200, accept=0.0)[-1] == 2


@pytest.mark.parametrize("batch", [4, 16, 64])
@pytest.mark.parametrize("rates", ["high", "middling", "low"])
def test_with_a_sound_profile_it_is_near_the_best_fixed_gamma(controller, batch, rates):
    cell = Engine(SURFACES["npu"], always(PROFILES[rates]), lambda done: batch, max(6000, 800 * batch))
    best, speed = best_fixed(cell, 4, 3)
    ours = cell.run(controller(), 3).rate
    assert ours / speed[best] > 0.9, f"{ours / speed[best]:.3f} of gamma {best}"


def test_calibration_mends_a_profile_whose_drafter_is_far_too_cheap(controller):
    cheap = {"draft": {"alpha_ms_per_context_token": 0.0, "gamma_ms_per_batched_token": 0.0, "delta_ms": 0.01}}
    cell = Engine(SURFACES["costly-drafter"], always(PROFILES["middling"]), lambda done: 16, 20000)
    mended, kept = (cell.run(controller(cheap, latency_calibration=on), 1).rate for on in (True, False))
    assert mended > 1.05 * kept, (mended, kept)


def test_a_restored_snapshot_continues_exactly(controller):
    first, second = controller(), controller()
    serve(first, 70, accept=0.4)
    second.restore(json.loads(json.dumps(first.snapshot())))
    assert second.snapshot() == first.snapshot()
    assert serve(second, 50, accept=0.9) == serve(first, 50, accept=0.9)


def test_a_snapshot_of_another_profile_or_a_damaged_one_is_ignored(controller, caplog):
    trained = controller()
    serve(trained, 70)
    snapshot = json.loads(json.dumps(trained.snapshot()))
    for broken in (
        {},
        {**snapshot, "policy": "online"},
        {**snapshot, "state": {**snapshot["state"], "gamma": 9}},
        {**snapshot, "state": {**snapshot["state"], "time": {"log": [math.inf] * 5, "samples": [0] * 5}}},
        {**snapshot, "state": {**snapshot["state"], "acceptance": None}},
    ):
        caplog.clear()
        fresh = controller()
        fresh.restore(broken)
        assert "controller state ignored" in caplog.text
        assert fresh.snapshot() == controller().snapshot()
    other = controller({"initial_gamma": 1})
    other.restore(snapshot)
    assert other.snapshot() == controller({"initial_gamma": 1}).snapshot()


numbers = st.one_of(st.integers(-3, 300), st.sampled_from([math.nan, math.inf, 1 << 40, None, "x", True]))
counts = st.lists(st.integers(-2, 9), max_size=6).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers, counts, counts, st.floats() | st.none()), max_size=40))
def test_no_feedback_makes_it_raise_or_leave_its_bounds(steps):
    path = Path(__file__).parents[3] / "profiles" / "example.json"
    assert read_profile(path).max_speculative_tokens == 4
    drives = make_controller(AdaptiveSettings(policy="profile", profile=path, min_gamma=1), max_gamma=4)
    for decodes, gamma, context, proposed, accepted, seconds in steps:
        decision = drives.decide(StepContext(decodes, 0, context, 8192))
        assert 1 <= decision.gamma <= 4
        assert decision.reason in REASONS
        drives.observe(StepOutcome(gamma, decodes, 0, context, proposed, accepted, 1, seconds))
    restored = make_controller(AdaptiveSettings(policy="profile", profile=path, min_gamma=1), max_gamma=4)
    restored.restore(json.loads(json.dumps(drives.snapshot(), allow_nan=False)))
    assert restored.snapshot() == drives.snapshot()
