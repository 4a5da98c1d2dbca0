"""What hosts promise: the published figures that they say they are fitted to, and times that can be."""

import pytest

from vllm_hust_vspec.simulate.engine import Engine
from vllm_hust_vspec.simulate.hosts import HOSTS, distorted
from vllm_hust_vspec.simulate.policies import Constant
from vllm_hust_vspec.simulate.steady import best_gamma
from vllm_hust_vspec.simulate.texts import Nature
from vllm_hust_vspec.simulate.workload import Phase, Workload


def gsm8k(host, acceptance, gamma, batch=128):
    """Tokens/s of the job behind the published Ascend figures: 200 prompts, answers of some 200 tokens."""
    work = Workload("gsm8k", (Phase(batch, Nature((acceptance,)), 1.0),), "drain", (80, 220), (80, 330), 200)
    return Engine(HOSTS[host].cost, work).run(Constant(gamma), 0).rate


@pytest.mark.parametrize(("gamma", "published"), [(0, 1565), (1, 1937), (2, 2068), (3, 1950), (4, 1862)])
def test_npu_draft_gives_the_published_tokens_per_s(gamma, published):
    assert gsm8k("npu-draft", 0.70, gamma) == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("gamma", "published"), [(0, 1565), (1, 2246), (2, 2410)])
def test_npu_eagle_gives_the_published_tokens_per_s(gamma, published):
    assert gsm8k("npu-eagle", 0.74, gamma) == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize(("gamma", "published"), [(0, 454), (5, 229)])
def test_npu_sync_gives_the_published_loss_at_batch_16(gamma, published):
    assert gsm8k("npu-sync", 0.70, gamma, 16) == pytest.approx(published, rel=0.06)


@pytest.mark.parametrize(
    ("gamma", "tokens_per_s", "accept_length"), [(1, 620.6, 2.0), (3, 954.8, 3.88), (7, 999.0, 6.25)]
)
def test_gpu_eagle_step_grows_as_published(gamma, tokens_per_s, accept_length):
    cost = HOSTS["gpu-eagle"].cost
    grown = cost(2, 2 * (gamma + 1), gamma, 0, 400) / cost(2, 2, 0, 0, 400)
    published = (accept_length / tokens_per_s) / (1.0 / 460.7)
    assert grown == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize("name", HOSTS)
def test_more_work_never_takes_less_time(name):
    cost = HOSTS[name].cost
    for batch in (1, 8, 100, 256):
        for gamma in range(8):
            here = cost(batch, batch * (1 + gamma), gamma, 64, 200 * batch)
            assert cost(batch, batch * (2 + gamma), gamma + 1, 64, 200 * batch) >= here > 0.0
            assert cost(batch, batch * (1 + gamma), gamma, 128, 200 * batch) >= here
            assert cost(batch, batch * (1 + gamma), gamma, 64, 400 * batch) >= here


def test_the_best_gamma_differs_over_the_grid():
    best = {
        best_gamma(host, batch, host.nature(rates), 4)
        for host in HOSTS.values()
        for batch in (1, 16, 128)
        for rates in ("high", "middling", "low")
    }
    assert best == {0, 1, 2, 3, 4}


def test_a_distorted_host_is_wrong_about_drafting_steps_alone():
    true, wrong = HOSTS["moe"].cost, distorted(HOSTS["moe"].cost, 1.2)
    assert wrong(8, 8, 0, 10, 800) == true(8, 8, 0, 10, 800)
    assert wrong(8, 8, 1, 10, 800) == pytest.approx(1.2 * true(8, 8, 1, 10, 800))
    assert wrong(8, 16, 0, 10, 800) == pytest.approx(1.2 * true(8, 16, 0, 10, 800))
