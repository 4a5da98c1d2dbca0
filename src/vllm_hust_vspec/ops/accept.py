"""Which drafts greedy verification accepts: strictly, among the target's best K, or close below its best.

The target's logits come as they are: [rows, vocabulary] in their own dtype, with a row for each draft and others
between. They are only read, and no copy of them is made.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accept_best(drafts: Tensor, best: Tensor) -> Tensor:
    """Strict: a draft is the target's best token. drafts, best: int [T]. Returns bool [T]."""
    return drafts == best


def accept_among_best(logits: Tensor, rows: Tensor, drafts: Tensor, best: Tensor, k: int, relaxed: Tensor) -> Tensor:
    """Relaxed: a draft's logit is at least the target's k-th best; equal logits count alike.

    logits: float [R, V]; rows: int [T], each draft's row; drafts, best: int [T]; k: 1..V; relaxed: bool [T], where the
    rule holds; strict elsewhere. A draft that is no token of the vocabulary or is masked (-inf) is not accepted.
    Returns bool [T].
    """
    lowest = logits.topk(k, dim=-1).values[:, -1]
    own, possible = _logits_of(logits, rows, drafts)
    return accept_best(drafts, best) | (relaxed & possible & (own >= lowest[rows]))


def accept_within_margin(
    logits: Tensor, rows: Tensor, drafts: Tensor, best: Tensor, margin: float, relaxed: Tensor, protected: Tensor
) -> Tensor:
    """Relaxed: a draft's logit is at most `margin` below the target's best, the distance taken in fp32.

    logits: float [R, V]; rows: int [T], each draft's row; drafts, best: int [T]; margin: finite, 0 or more; relaxed:
    bool [T], where the rule holds; protected: int [P], tokens that are accepted strictly only. A draft that is no token
    of the vocabulary or is masked (-inf) is not accepted. Returns bool [T].
    """
    own, possible = _logits_of(logits, rows, drafts)
    highest = logits[rows, best]
    near = highest.float() - own.float() <= margin
    free = ~(drafts[:, None] == protected).any(dim=1)
    return accept_best(drafts, best) | (relaxed & possible & free & near)


def _logits_of(logits: Tensor, rows: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Each draft's logit, and whether it is a token that the target could choose. Returns float [T], bool [T]."""
    inside = (drafts >= 0) & (drafts < logits.shape[1])
    own = logits[rows, drafts.clamp(0, logits.shape[1] - 1)]
    return own, inside & (own > -torch.inf)
