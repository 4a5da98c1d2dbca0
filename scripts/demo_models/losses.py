"""What a drafter is trained to do: give the target's most likely next tokens their probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from demo_models.shards import BEST, Sequence


class Batch:
    """Sequences padded on the right to one length; `real` marks what is no padding."""

    def __init__(self, sequences: list[Sequence], hidden: bool = True) -> None:
        length = max(len(one.tokens) for one in sequences)
        shape = (len(sequences), length)
        self.tokens = torch.zeros(shape, dtype=torch.long)
        self.best = torch.zeros(*shape, BEST, dtype=torch.long)
        self.odds = torch.zeros(*shape, BEST)
        self.real = torch.zeros(shape, dtype=torch.bool)
        self.hidden = torch.zeros(*shape, sequences[0].hidden.shape[-1] if hidden else 0, dtype=torch.bfloat16)
        for row, one in enumerate(sequences):
            size = len(one.tokens)
            self.tokens[row, :size] = one.tokens
            self.best[row, :size] = one.best
            self.odds[row, :size] = one.odds.float()
            self.real[row, :size] = True
            if hidden:
                self.hidden[row, :size] = one.hidden

    def candidates(self, others: Tensor, vocab: int) -> Candidates:
        """The tokens that the loss of this batch tells apart: its own tokens and best two, and `others`."""
        own = (self.tokens[self.real], self.best[self.real][:, :2].flatten(), others)
        return Candidates(torch.cat(own).unique(), vocab)


class Candidates:
    """A part of the vocabulary. A loss over all of it would cost more than the drafter itself."""

    def __init__(self, ids: Tensor, vocab: int) -> None:
        self.ids = ids
        self.place = torch.full((vocab,), -1)
        self.place[ids] = torch.arange(len(ids))

    def divergence(self, logits: Tensor, best: Tensor, odds: Tensor) -> Tensor:
        """Cross-entropy against the target's best tokens, mean over rows: logits [N, candidates], best, odds [N, 8]."""
        place = self.place[best]
        known = odds * (place >= 0)
        known = known / known.sum(-1, keepdim=True).clamp(min=1e-6)
        scores = functional.log_softmax(logits.float(), -1)
        return -(known * scores.gather(1, place.clamp(min=0))).sum(-1).mean()

    def agreement(self, logits: Tensor, best: Tensor) -> float:
        """How often the first choice among the candidates is the target's: logits [N, candidates], best [N, 8]."""
        return float((logits.argmax(-1) == self.place[best[:, 0]]).float().mean())
