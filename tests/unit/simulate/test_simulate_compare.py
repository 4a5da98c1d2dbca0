"""What a comparison promises: same texts for all, oracles that bound every fixed gamma, honest gates."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cells import cell, engine, workload

from vllm_hust_vspec.simulate import compare as compare_module
from vllm_hust_vspec.simulate.cells import ACCEPTANCES, CLASSES, CONCURRENCIES, grid
from vllm_hust_vspec.simulate.compare import BASELINES, ONLINE, WARM, WRONG, Result, compare, fixed
from vllm_hust_vspec.simulate.gates import gates, rows
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.policies import Constant
from vllm_hust_vspec.simulate.workload import Phase


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 99),
    host=st.sampled_from(sorted(HOSTS)),
    parts=st.lists(st.tuples(st.sampled_from([1, 4, 16]), st.sampled_from(ACCEPTANCES)), min_size=2, max_size=4),
)
def test_the_best_by_phase_is_never_worse_than_any_fixed_gamma(seed, host, parts):
    phases = [Phase(concurrency, HOSTS[host].nature(rates), 30) for concurrency, rates in parts]
    (result,) = compare(cell("moving", workload(phases=phases), host), seed, 3)
    assert all(result.oracle >= result.speeds[fixed(gamma)] * (1 - 1e-12) for gamma in range(4))
    assert result.best_fixed == max(result.speeds[fixed(gamma)] for gamma in range(4))


def test_a_fixed_gamma_in_a_comparison_is_its_run_alone():
    (result,) = compare(cell(), 3, 4, variants=False)
    host = HOSTS["npu-eagle"]
    alone = engine(lag=host.lag, budget=host.budget, noise=host.noise).run(Constant(2), 3)
    assert result.speeds[fixed(2)] == alone.rate
    assert set(result.speeds) == {*(fixed(gamma) for gamma in range(5)), *BASELINES, ONLINE}


def test_a_comparison_is_repeated_exactly():
    assert compare(cell(), 3, 2) == compare(cell(), 3, 2)


def test_stationary_cells_start_from_right_and_wrong_state_files_too():
    (result,) = compare(cell(), 1, 2)
    assert {WARM, *WRONG} <= set(result.speeds)
    assert result.long_run_best is not None


def test_waves_give_a_result_for_each_kind():
    nature = HOSTS["moe"].nature("high")
    phases = [Phase(size, nature, output=20, label=f"{name} x{size}") for size in (1, 4) for name in ("a", "b", "a")]
    results = compare(cell("waves", workload("waves", phases=phases), "moe"), 1, 2)
    assert [(result.texts, result.load) for result in results] == [
        ("a", "waves of 1"), ("b", "waves of 1"), ("a", "waves of 4"), ("b", "waves of 4"),
    ]  # fmt: skip


def test_a_controller_settles_where_its_choices_come_within_two_per_cent():
    quality = np.array([0.5] * 30 + [1.0] * 40)
    assert compare_module._settles(quality) == 30
    quality[40] = 0.7  # one probe
    assert compare_module._settles(quality) == 30
    assert compare_module._settles(np.full(50, 0.9)) == 50, "never"


def test_a_shift_that_asks_no_change_is_not_judged():
    host = HOSTS["npu-sync"]
    phases = [Phase(4, host.nature(rates), 30) for rates in ("middling", "low")]
    (result,) = compare(cell("shift", workload(phases=phases), "npu-sync"), 1, 2)
    assert result.settled is None


def test_the_full_grid_is_that_of_the_goals():
    cells = grid("full")
    assert {one.cls for one in cells} == set(CLASSES)
    stationary = {(one.host.name, one.load, one.texts) for one in cells if one.cls == "stationary"}
    assert len(stationary) == len(HOSTS) * len(CONCURRENCIES) * len(ACCEPTANCES)
    assert {load.split()[0] for _, load, _ in stationary} == {"1", "4", "16", "64", "128", "256"}
    assert len({(one.cls, one.name) for one in cells}) == len(cells)


def result(speed, none=1.0, best=2.0, cls="stationary", **more):
    speeds = {fixed(0): none, fixed(1): best, ONLINE: speed, **dict.fromkeys(BASELINES, 0.9 * best)}
    return Result(cls, "moe", "4 at once", "low", 1, 1, speeds, **more)


def verdict(results, name):
    (gate,) = [gate for gate in gates(results) if name in gate.name]
    return gate


@pytest.mark.parametrize(("speed", "passed"), [(1.92, True), (1.91, False)])
def test_worst_gate(speed, passed):
    gate = gates([result(2.0), result(speed)])[1]
    assert gate.name == "stationary, gamma up to 1: worst"
    assert gate.passed is passed
    assert gate.measured == f"{speed / 2:.3f}"
    assert "moe, low, 4 at once, seed 1" in gate.where


def test_no_speculation_gate():
    assert not verdict([result(0.96, best=0.9)], "against no speculation").passed
    assert verdict([result(0.98, best=0.9)], "against no speculation").passed


def test_ahead_needs_mean_and_worst():
    ahead, behind = result(2.0), result(1.9)
    assert verdict([ahead, behind], "ahead of UCB bandit").passed
    behind.speeds["UCB bandit"] = 1.95
    ahead.speeds["UCB bandit"] = 1.94
    assert not verdict([ahead, behind], "ahead of UCB bandit").passed


def test_moving_cells_must_not_lose_only_where_there_is_something_to_win():
    poor = result(1.9, cls="moving", oracle=2.02)
    rich = result(2.1, cls="moving", oracle=2.2)
    assert verdict([poor, rich], "worst, where the best by phase").passed
    rich.speeds[ONLINE] = 1.99
    assert not verdict([poor, rich], "worst, where the best by phase").passed


def test_rows_tell_mean_worst_and_share():
    (row,) = [row for row in rows([result(2.0), result(1.8)]) if row.policy == ONLINE]
    assert (row.mean, row.worst, row.cells, row.met) == (pytest.approx(0.95), pytest.approx(0.9), 2, 0.5)


@pytest.mark.parametrize(("load", "settled", "passed"), [
    ("16 at once", (40, 640), True), ("16 at once", (41, 656), False),
    ("4 at once", (60, 150), True), ("4 at once", (30, 151), False),
])  # fmt: skip
def test_shift_gate(load, settled, passed):
    (gate,) = gates([Result("shift", "moe", load, "high to low", 1, 4, settled=settled)])
    assert gate.passed is passed


def test_results_can_be_written():
    from dataclasses import asdict

    json.dumps(asdict(compare(cell(), 1, 1)[0]), allow_nan=False)
