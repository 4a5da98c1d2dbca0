"""What the baselines promise: each does what it is known for."""

import pytest
from small_cells import engine, workload

from vllm_hust_vspec.control import StepContext
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.policies import Bandit, BatchTable, Constant, ThroughputRule
from vllm_hust_vspec.simulate.steady import best_gamma, goodput


@pytest.mark.parametrize("host", ["npu-draft", "gpu", "cpu-draft"])
def test_the_table_is_best_where_it_was_tuned(host):
    table = BatchTable(HOSTS[host], 4)
    for batch in (1, 16, 128):
        expected = best_gamma(HOSTS[host], batch, HOSTS[host].nature("middling"), 4)
        assert table.decide(StepContext(batch, 0, 200 * batch, 8192)).gamma == expected


def test_the_table_is_blind_to_acceptance():
    host = HOSTS["npu-draft"]
    assert set(engine(workload(rates="none"), "npu-draft").run(BatchTable(host, 4), 1).gammas) == {
        best_gamma(host, 4, host.nature("middling"), 4)
    }


def test_the_bandit_tries_every_arm_and_then_stays_with_good_ones():
    gammas = engine(workload(concurrency=16, rates="high", steps=200)).run(Bandit(4), 1).gammas
    assert set(gammas[:24]) == {0, 1, 2, 3, 4}
    assert sum(gammas[-60:]) / 60 > 3.0


def test_the_rule_follows_acceptance_down():
    rule = ThroughputRule(HOSTS["gpu-eagle"], 4)
    gammas = engine(workload(rates="none", steps=60), "gpu-eagle").run(rule, 1).gammas
    assert gammas[0] > 0
    assert gammas[-1] == 0


@pytest.mark.parametrize("gamma", [0, 2, 4])
def test_long_runs_come_near_the_goodput_that_steady_predicts(gamma):
    host = HOSTS["npu-draft"]
    run = engine(workload(concurrency=16, host="npu-draft", steps=600), "npu-draft").run(Constant(gamma), 1)
    assert run.rate == pytest.approx(goodput(host, 16, host.nature("middling"), [gamma])[0], rel=0.04)
