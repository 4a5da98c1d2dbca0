"""The two drafters as things to be trained: a start, a loss for a batch, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_models import draft, eagle
from demo_models.llama import Llama
from demo_models.losses import Batch, Candidates
from demo_models.shards import Sequence

STEPS = 3  # drafts in a row that the head is trained for
_STEP_WEIGHTS = (1.0, 0.8, 0.6)
_REGRESSION = 0.2
_ONE_DRAFT_UNTIL = 400  # steps


class Learner(Protocol):
    """What the training loop knows of a drafter."""

    needs_hidden: bool
    lr: float
    batch: int

    def start(self, target: Llama, corpus: list[Sequence], seed: int) -> nn.Module: ...

    def loss(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor, step: int) -> Tensor:
        """The loss of a batch at a step of the training, among the batch's tokens and `others`."""
        ...

    def agreement(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor) -> list[float]:
        """How often each draft in a row is the target's choice."""
        ...


class EagleLearner:
    """A head first learns one draft; then every other step also drafts on from its own features, at more cost."""

    needs_hidden, lr, batch = True, 2e-3, 16

    def start(self, target: Llama, corpus: list[Sequence], seed: int) -> nn.Module:
        torch.manual_seed(seed)
        rms = torch.cat([one.hidden[8:32] for one in corpus[:64]]).float().square().mean().sqrt()
        return eagle.from_target(target, float(rms))

    def loss(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor, step: int) -> Tensor:
        candidates = batch.candidates(others, target.shape.vocab)
        total = torch.zeros(())
        drafts = STEPS if step >= _ONE_DRAFT_UNTIL and step % 2 else 1
        for weight, row in zip(_STEP_WEIGHTS, _rows(model, target, batch, candidates, drafts), strict=False):
            distance = functional.smooth_l1_loss(row.features, row.hidden.float())
            total = total + weight * (candidates.divergence(row.logits, row.best, row.odds) + _REGRESSION * distance)
        return total

    def agreement(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor) -> list[float]:
        candidates = batch.candidates(others, target.shape.vocab)
        rows = _rows(model, target, batch, candidates, STEPS)
        return [candidates.agreement(row.logits, row.best) for row in rows]


class DraftLearner:
    needs_hidden, lr, batch = False, 3e-3, 12

    def start(self, target: Llama, corpus: list[Sequence], seed: int) -> nn.Module:
        return draft.from_target(target, seed)

    def loss(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor, step: int) -> Tensor:
        candidates = batch.candidates(others, target.shape.vocab)
        return candidates.divergence(_logits(model, batch, candidates), batch.best[batch.real], batch.odds[batch.real])

    def agreement(self, model: nn.Module, target: Llama, batch: Batch, others: Tensor) -> list[float]:
        candidates = batch.candidates(others, target.shape.vocab)
        return [candidates.agreement(_logits(model, batch, candidates), batch.best[batch.real])]


class _Row(NamedTuple):
    """One draft of an EAGLE head, without padding: N rows."""

    features: Tensor  # float32 [N, H]
    logits: Tensor  # [N, candidates]
    hidden: Tensor  # bfloat16 [N, H], the target's
    best: Tensor  # [N, 8]
    odds: Tensor  # [N, 8]


def _rows(model: nn.Module, target: Llama, batch: Batch, candidates: Candidates, drafts: int) -> Iterator[_Row]:
    matrix = target.embed_tokens.weight[candidates.ids]
    embedded = target.embed_tokens(batch.tokens[:, 1:])
    for step, features in enumerate(model(embedded, batch.hidden[:, :-1], drafts)):
        aim = slice(1 + step, 1 + step + features.shape[1])
        real = batch.real[:, aim]
        ours = features[real].float()
        logits = functional.linear(ours.to(matrix.dtype), matrix)
        yield _Row(ours, logits, batch.hidden[:, aim][real], batch.best[:, aim][real], batch.odds[:, aim][real])


def _logits(model: nn.Module, batch: Batch, candidates: Candidates) -> Tensor:
    """Input and output share one gathered part of the embedding, whose gradient is as large as the whole."""
    assert isinstance(model, Llama)
    rows = model.embed_tokens(candidates.ids)
    places = candidates.place[batch.tokens].clamp(min=0)  # padding may be no candidate
    return functional.linear(model(functional.embedding(places, rows))[batch.real], rows)


LEARNERS: dict[str, Learner] = {"eagle": EagleLearner(), "draft": DraftLearner()}
