"""What the engine promises: work is conserved, texts do not depend on gammas, time passes as the host says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cells import Recorder, engine, workload

from vllm_hust_vspec.control import make_controller
from vllm_hust_vspec.settings import AdaptiveSettings
from vllm_hust_vspec.simulate.compare import online
from vllm_hust_vspec.simulate.engine import Engine, Noise
from vllm_hust_vspec.simulate.hosts import HOSTS
from vllm_hust_vspec.simulate.policies import Constant
from vllm_hust_vspec.simulate.sources import Open
from vllm_hust_vspec.simulate.workload import Phase

gammas = st.lists(st.integers(0, 8), min_size=1, max_size=5)


def test_same_seed_same_run():
    first, second = (engine().run(online(4, 3), 7) for _ in range(2))
    assert first == second


def test_another_seed_serves_other_texts():
    assert engine().run(Constant(3), 1).tokens != engine().run(Constant(3), 2).tokens


@settings(max_examples=40, deadline=None)
@given(
    gammas=gammas, seed=st.integers(0, 99), concurrency=st.integers(1, 9), host=st.sampled_from(["cpu-ngram", "moe"])
)
def test_every_request_of_a_given_job_is_served_to_its_length(gammas, seed, concurrency, host):
    work = workload("drain", concurrency, host=host, requests=12, output=(5, 60))
    run = engine(work, host).run(Recorder(*gammas), seed)
    lengths = work.texts(seed).lengths.tolist()
    assert [run.served[request] for request in range(12)] == lengths
    assert sum(run.tokens) == sum(lengths)
    assert len(run.latency_s) == 12


@settings(max_examples=20, deadline=None)
@given(gammas=gammas, seed=st.integers(0, 99), kind=st.sampled_from(["closed", "waves", "open"]))
def test_tokens_are_counted_once(gammas, seed, kind):
    run = engine(workload(kind, wave=30, rate=2.0)).run(Recorder(*gammas), seed)
    assert sum(run.tokens) == sum(run.served.values())


def test_a_constant_policy_is_its_fixed_baseline():
    fixed = make_controller(AdaptiveSettings(policy="fixed"), max_gamma=2, seed=0)
    assert engine().run(fixed, 5) == engine().run(Constant(2), 5) == engine().run(Recorder(2), 5)


def test_what_is_told_adds_up():
    recorder = Recorder(3, 0, 1)
    run = engine(host="cpu-ngram").run(recorder, 1)
    assert [outcome.committed_tokens for outcome in recorder.outcomes] == run.tokens
    for before, after in itertools.pairwise(recorder.outcomes):
        offered = sum(after.proposed)
        assert set(after.proposed) <= {0, before.gamma}, "drafts are those asked for one step before"
        assert after.verify_tokens - offered == len(after.proposed or after.request_ids) or not before.gamma
        assert all(accepted <= proposed for accepted, proposed in zip(after.accepted, after.proposed, strict=True))
        assert len(after.request_ids) == len(after.proposed)


def test_context_grows_by_what_is_kept():
    recorder = Recorder(2)
    engine(workload("waves", 3, wave=50)).run(recorder, 1)
    decodes = [outcome for outcome in recorder.outcomes if outcome.num_decodes == 3 and not outcome.num_prefill_tokens]
    for before, after in itertools.pairwise(decodes):
        if before.num_decodes == after.num_decodes:
            assert after.context_tokens == before.context_tokens + before.committed_tokens


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_an_outcome_is_known_after_as_many_more_decisions_as_the_lag_says(lag):
    recorder = Recorder(1)
    engine(lag=lag).run(recorder, 1)
    kinds = [kind for kind, _ in recorder.events]
    first = kinds.index("observe")
    assert kinds[:first] == ["decide"] * (lag + 1)
    assert kinds.count("observe") == kinds.count("decide"), "each decision gets exactly one outcome"
    pairs = ["observe", "decide"] * (kinds.count("decide") - lag - 1)
    assert kinds[first : first + len(pairs)] == pairs


def test_lag_changes_no_work():
    assert engine(lag=0).run(Recorder(2, 0), 1).seconds == engine(lag=2).run(Recorder(2, 0), 1).seconds


def test_the_clock_counts_clean_times_and_the_controller_is_shown_noisy_ones():
    recorder = Recorder(2)
    run = Engine(lambda *step: 10.0, workload(), noise=Noise(0.05, 0.05, 6.0)).run(recorder, 1)
    assert set(run.seconds) == {0.01}
    shown = np.array([outcome.interval_s for outcome in recorder.outcomes[1:]])
    assert np.median(shown) == pytest.approx(0.01, rel=0.05)
    assert shown.max() > 0.04
    assert recorder.outcomes[0].interval_s is None, "there is no step before the first"


def test_all_policies_are_shown_the_same_noise():
    shown = []
    for gamma in (0, 4):
        recorder = Recorder(gamma)
        Engine(lambda *step: 10.0, workload()).run(recorder, 1)
        shown.append([outcome.interval_s for outcome in recorder.outcomes[:20]])
    assert shown[0] == shown[1]


def test_prompts_are_chunked_within_the_token_budget():
    recorder = Recorder(3)
    work = workload("drain", 4, requests=8, prompt=(150, 200), output=(20, 30))
    engine(work, budget=64).run(recorder, 1)
    texts = work.texts(1)
    assert sum(step.num_prefill_tokens for step in recorder.contexts) == texts.prompts.sum()
    assert max(step.num_prefill_tokens + step.verify_tokens for step in recorder.contexts) == 64
    assert recorder.contexts[0].num_decodes == 0, "a request whose prompt is not done samples nothing"


def test_phases_follow_the_work_whatever_the_gammas():
    nature = HOSTS["moe"].nature("high")
    work = workload(phases=(Phase(8, nature, 30), Phase(2, nature, 30), Phase(8, nature, 30)))
    for gamma in (0, 4):
        tokens, _ = engine(work, "moe").run(Constant(gamma), 1).by_phase(3)
        assert tokens == pytest.approx([phase.tokens for phase in work.phases], abs=8 * 5)


def test_where_the_load_falls_the_youngest_are_aborted():
    nature = HOSTS["moe"].nature("middling")
    work = workload(phases=(Phase(8, nature, 20), Phase(2, nature, 20)))
    recorder = Recorder(2)
    run = engine(work, "moe").run(recorder, 1)
    assert {batch for batch, phase in zip(run.batches, run.phases, strict=True) if phase} == {2}
    first = run.phases.index(1)
    before, after = recorder.outcomes[first - 1], recorder.outcomes[first]
    assert set(after.request_ids) == set(sorted(before.request_ids, key=lambda name: int(name[1:]))[:2])
    assert 0 < after.context_tokens < before.context_tokens
    assert sum(run.tokens) == sum(run.served.values())


def test_a_wave_begins_when_the_one_before_is_served():
    recorder = Recorder(2)
    nature = HOSTS["moe"].nature("middling")
    phases = [Phase(size, nature, output=20) for size in (1, 6, 3)]
    run = engine(workload("waves", phases=phases), "moe").run(recorder, 1)
    firsts = [at for at, phase in enumerate(run.phases) if not at or phase != run.phases[at - 1]]
    assert [run.batches[at] for at in firsts] == [1, 6, 3]
    assert [at for at, outcome in enumerate(recorder.outcomes) if outcome.interval_s is None] == firsts
    tokens, _ = run.by_phase(3)
    assert tokens.tolist() == [20, 120, 60]


def test_open_loop_admits_nobody_before_the_time_of_arrival():
    work = workload("open", 30, rate=3.0)
    texts, arrivals = work.texts(1), work.arrivals(1)
    source, running = Open(work, arrivals), 0
    clock = 0.0
    while source._next < len(texts.lengths):
        clock, _ = source.wait(clock, running)
        joined = source.join(clock, running)
        assert all(arrivals[request] <= clock for request in joined)
        assert all(arrivals[request] > clock for request in range(joined.stop, len(arrivals)))
        clock += 0.1


def test_open_loop_waits_idle_where_requests_are_rare():
    recorder = Recorder(1)
    run = engine(workload("open", 10, rate=0.001)).run(recorder, 1)
    assert max(run.batches) == 1
    assert sum(outcome.interval_s is None for outcome in recorder.outcomes) == 10


def test_open_loop_arrivals_do_not_depend_on_gammas_and_speed_shortens_the_wait():
    work = workload("open", 40, "high", rate=1.0)
    slow, fast = (engine(work).run(Constant(gamma), 1) for gamma in (0, 4))
    assert sum(slow.tokens) == sum(fast.tokens)
    assert np.mean(fast.latency_s) < np.mean(slow.latency_s)
