from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from demo_models import eagle
from demo_models.eagle import EagleHead
from demo_models.llama import Llama, rotations


def _served(head: EagleHead, embedded: Tensor, hidden: Tensor, base: int, steps: int) -> list[Tensor]:
    """Features as serving computes them: the target's hidden states up to `base`, then the head's own, one by one."""
    layer = head.layers[0]
    features: list[Tensor] = []
    known = [hidden[:, at] for at in range(base + 1)]
    for step in range(steps):
        rows = base + 1 + step
        x = head.fc(torch.cat((embedded[:, :rows], torch.stack(known, 1)), -1))
        q, k, v = layer.self_attn.project(x, rotations(head.shape, torch.arange(rows)[None], x.dtype))
        heads = layer.self_attn.heads // layer.self_attn.kv_heads
        q = q.view(x.shape[0], layer.self_attn.heads, rows, -1)
        k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + layer.self_attn.o_proj(mixed)
        feature = (x + layer.mlp(layer.post_attention_layernorm(x)))[:, -1]
        features.append(feature)
        known.append(feature)
    return features


def test_all_drafts_at_once_are_those_of_serving(target: Llama) -> None:
    torch.manual_seed(3)
    head = eagle.from_target(target, 1.0)
    embedded, hidden = torch.randn(2, 9, 32), torch.randn(2, 9, 32)
    with torch.no_grad():
        at_once = head(embedded, hidden, 3)
        for base in (0, 3, 6):
            for step, expected in enumerate(_served(head, embedded, hidden, base, 3)):
                assert torch.allclose(at_once[step][:, base], expected, atol=1e-4), (base, step)


def test_padding_on_the_right_changes_nothing(target: Llama) -> None:
    torch.manual_seed(4)
    head = eagle.from_target(target, 1.0)
    embedded, hidden = torch.randn(1, 8, 32), torch.randn(1, 8, 32)
    padded = [functional.pad(one, (0, 0, 0, 3)) for one in (embedded, hidden)]
    with torch.no_grad():
        for ours, theirs in zip(head(embedded, hidden, 3), head(*padded, 3), strict=True):
            assert torch.allclose(ours, theirs[:, : ours.shape[1]], atol=1e-5)
