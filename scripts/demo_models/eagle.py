"""An EAGLE-1 head as vLLM loads it: one Llama layer without its first norm on top of [embedding, hidden state].

Feature i comes from the target's hidden state at token i and the embedding of token i + 1. Times the target's output
matrix it gives the draft of token i + 2, and it stands in for the hidden state at i + 1 when drafting goes on.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from demo_models.llama import Attention, Layer, Llama, RMSNorm, Shape, causal_mask, rotations

_INIT_OUTPUTS = 0.03  # of the target's last layer, whose weights the head starts from


class EagleHead(nn.Module):
    """The names of its parameters are those of the checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.layers = nn.ModuleList([Layer(shape)])
        self.layer.input_layernorm = nn.Identity()

    @property
    def layer(self) -> Layer:
        only = self.layers[0]
        assert isinstance(only, Layer)
        return only

    def forward(self, embedded: Tensor, hidden: Tensor, steps: int) -> list[Tensor]:
        """Features of `steps` drafting steps from every token at once, as if each earlier draft had been right.

        embedded [B, T, H]: token i + 1 at i; hidden [B, T, H]: the target's at i, padded on the right. Returns for
        step s = 0, 1, ...: [B, T - s, H], at i the draft of token i + 2 + s.

        Later steps see the keys of the target's hidden states up to i, and their own since: what serving computes.
        """
        layer, attention = self.layer, self.layer.self_attn
        base_k, base_v = hidden, hidden  # set in the first step
        own: list[tuple[Tensor, Tensor]] = []
        features: list[Tensor] = []
        for step in range(steps):
            rows = embedded.shape[1] - step
            before = hidden if step == 0 else features[-1][:, :rows]
            x = self.fc(torch.cat((embedded[:, step:], before.to(embedded.dtype)), -1))
            rotation = rotations(self.shape, step + torch.arange(rows)[None], x.dtype)
            q, k, v = attention.project(x, rotation)
            if step == 0:
                base_k, base_v = k, v
            else:
                own.append((k, v))
            mixed = _attend(attention, q, base_k[:, :, :rows], base_v[:, :, :rows], own)
            x = x + attention.merge(mixed)
            features.append(x + layer.mlp(layer.post_attention_layernorm(x)))
        return features


def from_target(target: Llama, hidden_rms: float) -> EagleHead:
    """A head to start training from: the target's last layer, its first norm folded in, and a mostly passing `fc`.

    hidden_rms: root mean square of the target's hidden states after the final norm.
    """
    head = EagleHead(target.shape)
    last, layer = target.layers[-1], head.layer
    assert isinstance(last, Layer)
    assert isinstance(last.input_layernorm, RMSNorm)
    gain = last.input_layernorm.weight.float()
    size = target.shape.hidden
    with torch.no_grad():
        for (name, ours), (_, theirs) in zip(_matrices(layer), _matrices(last), strict=True):
            folded = (
                theirs.float() * gain if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")) else theirs
            )
            ours.copy_(folded * _INIT_OUTPUTS if name.endswith(("o_proj.weight", "down_proj.weight")) else folded)
        layer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight)
        nn.init.normal_(head.fc.weight, std=0.02)
        head.fc.weight[:, size:] = torch.eye(size) * (0.7 / hidden_rms)
    return head


def _attend(attention: Attention, q: Tensor, k: Tensor, v: Tensor, own: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Causal over k and v [B, KV, n, D], and to the step's own earlier keys of the same row. -> [B * KV, G * n, D]."""
    rows = k.shape[2]
    scores = [attention.scores(q, k) + causal_mask(rows, q.dtype)]
    grouped = q.view(q.shape[0], q.shape[1], -1, rows, q.shape[-1])
    scale = 1 / math.sqrt(attention.head_dim)
    scores += [(grouped * key[:, :, None, :rows]).sum(-1, keepdim=True) * scale for key, _ in own]
    weights = torch.cat(scores, -1).float().softmax(-1).to(v.dtype)
    mixed = torch.bmm(weights[..., :rows].flatten(2, 3).flatten(0, 1), v.flatten(0, 1)).view(grouped.shape)
    for number, (_, value) in enumerate(own):
        mixed = mixed + weights[..., rows + number, None] * value[:, :, None, :rows]
    return mixed.flatten(2, 3).flatten(0, 1)


def _matrices(layer: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, parameter) for name, parameter in layer.named_parameters() if parameter.dim() == 2]
