"""Linear verification: from drafts and what became of each to the tokens that a step commits.

A batch's drafts lie in a row, request after request. `ends` is the running sum of drafts a request: request r owns the
drafts from ends[r - 1] (0 for the first) up to ends[r]. A request may have none.
"""

from __future__ import annotations

import torch
from torch import Tensor

PLACEHOLDER = -1


def committed_tokens(drafts: Tensor, accepted: Tensor, best: Tensor, bonus: Tensor, ends: Tensor, width: int) -> Tensor:
    """What each request commits: its drafts up to the first that is not accepted, then one token of the target's.

    drafts: int [T]; accepted: bool [T]; best: int [T], the target's best token at each draft's place; bonus: int [B],
    its best token behind a request's last draft; ends: int [B]; width: the most drafts of a request, T > 0 iff > 0.
    Returns int32 [B, width + 1] with -1 behind each request's last token.
    (Leviathan et al. 2023, "Fast inference from transformers via speculative decoding", at temperature 0.)
    """
    if width == 0:
        return bonus[:, None].to(torch.int32)
    num_drafts, requests = drafts.shape[0], ends.shape[0]
    column = torch.arange(width + 1, device=ends.device)
    if num_drafts == requests * width:  # all have as many, as nearly always: the row only needs to be folded
        stands = torch.nn.functional.pad(accepted.view(requests, width), (0, 1), value=False)
        offered = torch.nn.functional.pad(drafts.view(requests, width), (0, 1), value=PLACEHOLDER)
        own = torch.cat([best.view(requests, width), bonus[:, None]], dim=1)
    else:
        starts = torch.nn.functional.pad(ends[:-1], (1, 0))
        is_draft = column < (ends - starts)[:, None]
        place = (starts[:, None] + column).clamp(max=num_drafts - 1)
        stands, offered = accepted[place] & is_draft, drafts[place]
        own = torch.where(is_draft, best[place], bonus[:, None])
    num_accepted = ((~stands).int().cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
    tokens = torch.where(column < num_accepted, offered, own.to(offered.dtype))
    return tokens.masked_fill(column > num_accepted, PLACEHOLDER).to(torch.int32)


def owners(ends: Tensor, num_drafts: int) -> Tensor:
    """The request of each draft. ends: int [B]; num_drafts: T. Returns int64 [T]."""
    place = torch.arange(num_drafts, device=ends.device)
    return (ends <= place[:, None]).sum(dim=1)


def draft_positions(ends: Tensor, owner: Tensor) -> Tensor:
    """How many drafts of its own request precede each draft. ends: int [B]; owner: int [T]. Returns int64 [T]."""
    starts = torch.nn.functional.pad(ends[:-1], (1, 0))
    return torch.arange(owner.shape[0], device=ends.device) - starts[owner]
