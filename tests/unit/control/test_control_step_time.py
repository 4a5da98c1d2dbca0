"""What step_time.py promises: the time of any gamma out of the steps that were seen."""

import numpy as np
import pytest

from vllm_hust_vspec.control.step_time import CELLS, Step, StepTime


def feed(model, surface, batches, gammas, steps=200, noise=0.03, seed=0, prefill=0):
    rng = np.random.default_rng(seed)
    before = 0
    for i in range(steps):
        batch, gamma = batches[i % len(batches)], gammas[i // 4 % len(gammas)]
        prompts = int(rng.integers(0, prefill)) if prefill else 0
        step = Step(batch, batch * (1 + before), gamma, float(before > 0), prompts, 100 * batch)
        model.observe(gamma, step, surface(step) * float(np.exp(rng.normal(0, noise))))
        before = gamma
    return model


def steady(batch, top=4):
    return [Step(batch, batch * (1 + gamma), gamma, float(gamma > 0), 0, 100 * batch) for gamma in range(top + 1)]


def bound_by_memory(step):
    return max(0.02, 0.0001 * step.verify) + 0.002 * step.passes + 0.0002 * step.prefill


def bound_by_arithmetic(step):
    return 0.01 + 0.003 * step.verify + 0.002 * step.passes + 0.003 * step.prefill


@pytest.mark.parametrize("surface", [bound_by_memory, bound_by_arithmetic])
@pytest.mark.parametrize("batch", [1, 32])
def test_time_is_learnt_for_every_gamma(surface, batch):
    model = feed(StepTime(), surface, [batch], [0, 1, 2, 3, 4])
    true = [surface(step) for step in steady(batch)]
    assert model.predict(steady(batch)) == pytest.approx(true, rel=0.07)


def test_prefill_is_a_regressor_and_leaves_decode_times_clean():
    model = feed(StepTime(), bound_by_arithmetic, [32], [0, 1, 2], steps=300, prefill=400)
    true = [bound_by_arithmetic(step) for step in steady(32, 2)]
    assert model.predict(steady(32, 2)) == pytest.approx(true, rel=0.12)


def test_a_load_never_seen_is_told_by_the_width_that_was():
    model = feed(StepTime(), bound_by_arithmetic, [64], [0, 1, 2, 3])
    true = [bound_by_arithmetic(step) for step in steady(128, 1)]
    assert model.predict(steady(128, 1)) == pytest.approx(true, rel=0.15)


def test_outliers_are_counted_and_change_little():
    def spiky(step):
        return bound_by_memory(step) * (8.0 if spikes.random() < 0.03 else 1.0)

    spikes = np.random.default_rng(1)
    model = feed(StepTime(), spiky, [16], [0, 1, 2, 3, 4], steps=400)
    true = [bound_by_memory(step) for step in steady(16)]
    assert model.outliers > 0
    assert model.predict(steady(16)) == pytest.approx(true, rel=0.15)


def test_a_slower_machine_is_noticed_for_the_gammas_not_in_use_too():
    model = feed(StepTime(), bound_by_memory, [8], [0, 1, 2, 3])
    quiet = model.predict(steady(8))[0]
    feed(model, lambda step: 1.4 * bound_by_memory(step), [8], [3], steps=60)
    assert model.predict(steady(8))[0] > 1.15 * quiet


def test_calibration_meets_a_step_that_no_smooth_function_has():
    def eager_at_two(step):
        return bound_by_memory(step) + (0.006 if step.verify == 3 * step.batch else 0.0)

    errors = {}
    for calibrate in (True, False):
        model = feed(StepTime(calibrate=calibrate), eager_at_two, [8], [0, 1, 2, 3, 4], steps=600)
        errors[calibrate] = abs(model.predict(steady(8))[2] / eager_at_two(steady(8)[2]) - 1)
    assert errors[True] < errors[False]


def test_memory_is_bounded():
    model = StepTime()
    rng = np.random.default_rng(0)
    for _ in range(3000):
        batch, gamma = int(rng.integers(1, 512)), int(rng.integers(0, 9))
        model.observe(gamma, Step(batch, batch * (1 + gamma), gamma, 1.0, 0, 0), 0.01 + 1e-5 * batch)
    assert len(model.dump()["cells"]) == CELLS
