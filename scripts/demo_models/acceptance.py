"""How much of what a drafter offers the target accepts, counted as greedy speculative decoding would meet it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from demo_models.eagle import EagleHead
from demo_models.llama import Llama
from demo_models.losses import Batch
from demo_models.shards import Sequence

GAMMA = 3
_ROWS = 1024  # of logits at a time


@dataclass(frozen=True, slots=True)
class Tally:
    """Verifications, and how many of them accepted the first, second, ... draft token."""

    verifications: int
    accepted: tuple[int, ...]

    @property
    def per_position(self) -> list[float]:
        return [count / max(self.verifications, 1) for count in self.accepted]

    @property
    def mean_length(self) -> float:
        """Tokens per verification: the accepted ones and the target's own."""
        return 1 + sum(self.per_position)


def add(tallies: Iterable[Tally]) -> Tally:
    """All of them as one."""
    listed = list(tallies)
    accepted = zip(*(one.accepted for one in listed), strict=True)
    return Tally(sum(one.verifications for one in listed), tuple(sum(column) for column in accepted))


def count(right: Tensor, start: int, end: int) -> Tally:
    """Walk over a sequence as decoding does: accept while drafts are right, take one token of the target, draft again.

    right: bool [L, gamma]; row i: is draft 1, 2, ... that follows token i the sequence's token? Decoding starts with
    token `start` known; windows that reach beyond token `end` - 1 are left out.
    """
    gamma = right.shape[1]
    run = right.int().cumprod(1).sum(1).tolist()
    verifications, accepted, at = 0, [0] * gamma, start
    while at + gamma < end:
        verifications += 1
        for position in range(run[at]):
            accepted[position] += 1
        at += run[at] + 1
    return Tally(verifications, tuple(accepted))


@torch.inference_mode()
def measure_draft(model: Llama, sequences: list[Sequence], gamma: int = GAMMA) -> Tally:
    """Acceptance of a draft model on the target's greedy continuations.

    A draft counts only where all before it were right, so the model reads the sequence itself.
    """
    batch = Batch(sequences, hidden=False)
    hidden = model(model.embed_tokens(batch.tokens))
    once = _first_choices(hidden, model.embed_tokens.weight)[:, :-1] == batch.tokens[:, 1:]
    once = functional.pad(once, (0, gamma))
    right = torch.stack([once[:, step : once.shape[1] - gamma + step] for step in range(gamma)], -1)
    return _walk(right, sequences)


@torch.inference_mode()
def measure_eagle(head: EagleHead, target: Llama, sequences: list[Sequence], gamma: int = GAMMA) -> Tally:
    """Acceptance of an EAGLE head on the target's greedy continuations, drafting on from its own features."""
    batch = Batch(sequences)
    embedded = target.embed_tokens(batch.tokens[:, 1:])
    right = torch.zeros(*batch.tokens.shape, gamma, dtype=torch.bool)
    for step, features in enumerate(head(embedded, batch.hidden[:, :-1], gamma)):
        drafts = _first_choices(features[:, : features.shape[1] - 1], target.embed_tokens.weight)
        right[:, 1 : 1 + drafts.shape[1], step] = drafts == batch.tokens[:, 2 + step :]
    return _walk(right, sequences)


def _walk(right: Tensor, sequences: list[Sequence]) -> Tally:
    return add(count(rows, one.prompt_length, len(one.tokens)) for rows, one in zip(right, sequences, strict=True))


def _first_choices(hidden: Tensor, matrix: Tensor) -> Tensor:
    rows = hidden.flatten(0, 1).split(_ROWS)
    return torch.cat([functional.linear(part, matrix).argmax(-1) for part in rows]).view(hidden.shape[:2])
