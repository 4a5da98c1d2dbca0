"""The draft model: two Llama layers on a low-rank projection of the target's embedding."""

from __future__ import annotations

import torch
from torch import nn

from demo_models.llama import Llama, Shape

HIDDEN, INTERMEDIATE, LAYERS, HEADS = 256, 768, 2, 8
_EMBEDDING_STD = 0.05


def draft_shape(vocab: int) -> Shape:
    return Shape(vocab, HIDDEN, INTERMEDIATE, LAYERS, HEADS, HEADS, HIDDEN // HEADS)


def from_target(target: Llama, seed: int) -> Llama:
    """A draft model to start training from: random layers, and the target's embedding in its main directions."""
    generator = torch.Generator().manual_seed(seed)
    model = Llama(draft_shape(target.shape.vocab))
    embedding = target.embed_tokens.weight.float()
    with torch.no_grad():
        centred = embedding - embedding.mean(0)
        _, directions = torch.linalg.eigh(centred.T @ centred)  # in rising order
        reduced = centred @ directions[:, -HIDDEN:]
        model.embed_tokens.weight.copy_(reduced * (_EMBEDDING_STD / reduced.std()))
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                nn.init.normal_(parameter, std=0.02, generator=generator)
    return model
