from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from demo_models.draft import HIDDEN
from demo_models.learners import DraftLearner, EagleLearner, Learner
from demo_models.llama import Llama, Shape
from demo_models.losses import Batch, Candidates
from demo_models.pacing import Budget
from demo_models.shards import Sequence
from demo_models.train import Training


class _SmallDraft(DraftLearner):
    lr, batch = 1e-2, 8

    def start(self, target: Llama, corpus: list[Sequence], seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return Llama(Shape(vocab=260, hidden=16, intermediate=32, layers=1, heads=2, kv_heads=2, head_dim=8))


class _QuickEagle(EagleLearner):
    lr = 1e-2


LEARNERS = [pytest.param(_QuickEagle(), id="eagle"), pytest.param(_SmallDraft(), id="draft")]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_slice_lowers_the_loss(learner: Learner, target: Llama, corpus: list[Sequence]) -> None:
    training = Training(learner, target, corpus)
    losses = [training.advance() for _ in range(40)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5]), losses


@pytest.mark.parametrize("learner", LEARNERS)
def test_training_resumes_exactly(learner: Learner, target: Llama, corpus: list[Sequence], tmp_path: Path) -> None:
    through = Training(learner, target, corpus)
    for _ in range(4):
        through.advance()
    through.save(tmp_path / "state.pt")
    again = Training(learner, target, corpus, seed=0)
    again.load(tmp_path / "state.pt")
    for _ in range(6):  # over the end of an epoch
        assert through.advance() == again.advance()
    for name, weight in through.average.state_dict().items():
        assert torch.equal(weight, again.average.state_dict()[name]), name


def test_sequences_held_back_are_never_trained_on(target: Llama, corpus: list[Sequence]) -> None:
    training = Training(_SmallDraft(), target, corpus * 2)
    assert [id(one) for one in training.validation] == [id((corpus * 2)[60])]
    assert len(training._lessons) == 2 * len(corpus) - 1


def test_the_head_learns_to_go_on_after_its_first_steps(target: Llama, corpus: list[Sequence]) -> None:
    learner = EagleLearner()
    head = learner.start(target, corpus, 0)
    batch, others = Batch(corpus[:4]), torch.arange(260)
    with torch.no_grad():
        early, late = (float(learner.loss(head, target, batch, others, step)) for step in (0, 10_001))
    assert late > 1.5 * early, "later steps count three drafts"


def test_divergence_is_the_cross_entropy_where_all_tokens_are_candidates() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    best = torch.tensor([[5, 9, 1, 2, 3, 4, 6, 7]] * 3)
    odds = torch.tensor([[0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 3)
    logs = logits.log_softmax(-1)
    expected = -(2 / 3 * logs[:, 5] + 1 / 3 * logs[:, 9]).mean()
    assert torch.allclose(Candidates(torch.arange(40), 40).divergence(logits, best, odds), expected)


def test_tokens_that_are_no_candidates_weigh_nothing() -> None:
    candidates = Candidates(torch.tensor([5, 9]), 40)
    best = torch.tensor([[5, 20, 21, 22, 23, 24, 25, 26]])
    loss = candidates.divergence(torch.zeros(1, 2), best, torch.full((1, 8), 0.125))
    assert float(loss) == pytest.approx(0.6931, abs=1e-3)


def test_the_draft_starts_from_the_targets_main_directions() -> None:
    from demo_models import draft

    torch.manual_seed(5)
    target = Llama(Shape(vocab=400, hidden=300, intermediate=8, layers=1, heads=2, kv_heads=2, head_dim=8))
    with torch.no_grad():
        target.embed_tokens.weight.copy_(torch.randn(400, 300) * (torch.arange(300) < 200))
    ours = draft.from_target(target, 0).embed_tokens.weight.detach()
    matrix = target.embed_tokens.weight.detach()
    theirs = matrix - matrix.mean(0)
    ratio = torch.cdist(ours, ours)[0, 1:] / torch.cdist(theirs, theirs)[0, 1:]
    assert ours.shape == (400, HIDDEN)
    assert float(ratio.std() / ratio.mean()) < 1e-3, "200 directions fit whole, so distances keep their proportions"


def test_a_budget_ends_and_waits_while_the_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, quiet = [0.0], tmp_path / "quiet"
    monkeypatch.setattr("demo_models.pacing.time.monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        clock[0] += 600
        quiet.unlink()

    monkeypatch.setattr("demo_models.pacing.time.sleep", sleep)
    budget = Budget(1, quiet)
    clock[0] = 30
    quiet.touch()
    assert budget.goes_on(), "the ten minutes of the pause are not used up"
    assert budget.used() == pytest.approx(0.5)
    clock[0] += 31
    assert not budget.goes_on()
