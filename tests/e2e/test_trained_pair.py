"""The adaptive controller on a target and a draft model that were trained: real acceptance, which differs by text."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cases import smallest_gap
from engines import MAX_GAMMA, TIE, Engine, engine

from demo_models import tiny_text

PAIR = Path(__file__).parents[1] / "models" / "tiny_pair"
PROMPTS, TOKENS = 12, 64
LENGTH = 128  # of a prompt, in bytes, each a token: with the answer as long as the texts of the training
STEP_S = 0.01
Answers = dict[str, tuple[list[str], list[list[list[int]]]]]


def _params(**more: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, **more)


@pytest.fixture(scope="module")
def expected() -> Answers:
    """Prompts of each kind and the target's own tokens. Left out: prompts along whose answer the target nearly ties."""
    found: Answers = {}
    draw = random.Random(7)
    with engine(PAIR / "target") as plain:
        for kind in tiny_text.KINDS:
            asked = [tiny_text.prompt(kind, draw)[-LENGTH:] for _ in range(PROMPTS)]
            probed = plain.llm.generate(asked, _params(logprobs=2), use_tqdm=False)
            prompts = [text for text, answer in zip(asked, probed, strict=True) if smallest_gap(answer) >= TIE]
            assert len(prompts) > PROMPTS // 2, f"the pair nearly ties on {kind}"
            found[kind] = (prompts, plain.generate(prompts, _params()))
    return found


@pytest.fixture(scope="module")
def adaptive(expected: Answers) -> Iterator[Engine]:
    with engine(PAIR / "target", method="draft_model", drafter=PAIR / "draft") as started:
        assert type(started.scheduler).__name__ == "AdaptiveScheduler"
        yield started


@pytest.fixture(autouse=True)
def fresh(adaptive: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with a controller that knows nothing, and ends with vLLM's own clock and no pin."""
    loop = adaptive.scheduler.vspec
    monkeypatch.setattr(loop, "clock", loop.clock)
    monkeypatch.setattr(loop, "pin", None)
    loop.reset()


@dataclass(frozen=True)
class Counted:
    """What a piece of work added to the engine's counters."""

    gammas: collections.Counter[int]
    proposed: int
    accepted: int
    verifications: int
    faults: int

    @property
    def length(self) -> float:
        """Tokens that a verification yields, the target's own included."""
        return 1 + self.accepted / self.verifications

    def share(self, gammas: set[int]) -> float:
        return sum(self.gammas[gamma] for gamma in gammas) / self.gammas.total()


def _counted(started: Engine, work: Callable[[], None]) -> Counted:
    before = started.scheduler.vspec.counters()
    work()
    after = started.scheduler.vspec.counters()
    assert after["policy"] == "online"
    earlier = before["gamma_histogram"]
    gammas = {int(gamma): count - earlier.get(gamma, 0) for gamma, count in after["gamma_histogram"].items()}
    sums = {name: after[name] - before[name] for name in ("proposed", "accepted", "verifications", "faults")}
    return Counted(+collections.Counter(gammas), **sums)


def _paced(started: Engine, pass_s: float) -> Callable[[], float]:
    """A clock by which a step takes STEP_S and each pass of the drafter `pass_s`, whatever this machine is doing.

    The loop reads its clock once a step, when the step's output is there.
    """
    loop, now = started.scheduler.vspec, 0.0

    def clock() -> float:
        nonlocal now
        now += STEP_S + pass_s * loop.gamma  # at gamma 0 the drafter rests
        return now

    return clock


@pytest.mark.parametrize("kind", tiny_text.KINDS)
def test_adaptive_gamma_keeps_the_targets_tokens(kind: str, adaptive: Engine, expected: Answers) -> None:
    prompts, tokens = expected[kind]

    def work() -> None:
        for _ in range(2):
            assert adaptive.generate(prompts, _params()) == tokens

    counted = _counted(adaptive, work)
    assert counted.faults == 0
    assert len(counted.gammas) > 1, f"gamma never moved: {counted.gammas}"
    assert counted.accepted > 0.3 * counted.proposed > 0, "hardly more than chance is accepted"


def test_acceptance_differs_between_kinds_of_text(adaptive: Engine, expected: Answers) -> None:
    adaptive.scheduler.vspec.pin = 3
    lengths = {}
    for kind, (prompts, tokens) in expected.items():

        def work(prompts: list[str] = prompts, tokens: Any = tokens) -> None:
            assert adaptive.generate(prompts, _params()) == tokens

        lengths[kind] = _counted(adaptive, work).length
    assert all(1.3 < length <= 4 for length in lengths.values()), lengths
    assert max(lengths.values()) - min(lengths.values()) > 0.3, lengths


@pytest.mark.parametrize(
    ("pass_s", "wanted"),
    [(STEP_S / 50, {MAX_GAMMA - 1, MAX_GAMMA}), (2 * STEP_S, {0, 1})],
    ids=["cheap", "dear"],
)
def test_gamma_goes_where_real_acceptance_and_the_price_of_a_pass_lead(
    pass_s: float, wanted: set[int], adaptive: Engine, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive.scheduler.vspec, "clock", _paced(adaptive, pass_s))
    prompts, tokens = expected["counting"]

    def work() -> None:
        for _ in range(3):
            assert adaptive.generate(prompts, _params()) == tokens

    work()
    learnt = _counted(adaptive, work)
    assert learnt.share(wanted) > 0.6, f"steps by gamma: {dict(learnt.gammas)}, acceptance length {learnt.length:.2f}"
