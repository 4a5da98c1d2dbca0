"""Filters on logits."""

import torch
from torch import Tensor

from torch_npu.ops.binding import npu


@npu.operator(
    "npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor",
    meta=lambda logits, *rest, **options: torch.empty_like(logits),
)
def top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """Keep each row's k largest logits, then the smallest set of them whose probability reaches p; the rest become
    -inf.

    logits: [B, V]; p: [B] in [0, 1]; k: int32 [B]. Logits equal to the k-th stay, and the largest always stays.
    """
    ascending, order = logits.sort(-1)
    width = logits.shape[-1]
    if k is not None:
        threshold = ascending.gather(1, (width - k.long().clamp(1, width))[:, None])
        ascending = ascending.masked_fill(ascending < threshold, float("-inf"))
    if p is not None:
        below = ascending.float().softmax(-1).cumsum(-1) <= 1 - p.float()[:, None]
        below[:, -1] = False
        ascending = ascending.masked_fill(below, float("-inf"))
    return logits.scatter(-1, order, ascending)
