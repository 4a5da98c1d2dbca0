"""A Llama in plain PyTorch, small enough to read: decoding with a fixed cache, training, and an EAGLE head's one layer.

Parameters carry the names of the Hugging Face checkpoints, so a state dict is a checkpoint.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama; the embedding is also the output matrix."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float = 10000.0
    rms_eps: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return scaled.to(x.dtype) * self.weight.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention. Projection and attending are apart, because an EAGLE head attends in its own way."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def project(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, T, hidden] -> q [B, KV, G * T, D], k and v [B, KV, T, D]; G query heads share a key head."""
        batch, length = x.shape[:2]
        q = _rotate(self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2), rotation)
        k = _rotate(self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2), rotation)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        return q.reshape(batch, self.kv_heads, -1, self.head_dim), k, v

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """q [B, KV, G * T, D], k [B, KV, S, D] -> [B, KV, G, T, S], scaled."""
        batch, _, rows, _ = q.shape
        groups = self.heads // self.kv_heads
        raw = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) / math.sqrt(self.head_dim)
        return raw.view(batch, self.kv_heads, groups, rows // groups, -1)

    def merge(self, mixed: Tensor) -> Tensor:
        """[B * KV, G * T, D] -> [B, T, hidden], through the output matrix."""
        batch = mixed.shape[0] // self.kv_heads
        split = mixed.view(batch, self.heads, -1, self.head_dim).transpose(1, 2)
        merged: Tensor = self.o_proj(split.reshape(batch, -1, self.heads * self.head_dim))
        return merged

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, cache: Cache | None = None) -> Tensor:
        """mask: additive, broadcast over [B, KV, G, T, S]."""
        q, k, v = self.project(x, rotation)
        if cache is not None:
            k, v = cache.extend(k, v)
        weights = (self.scores(q, k) + mask).float().softmax(-1).to(v.dtype)
        return self.merge(torch.bmm(weights.flatten(2, 3).flatten(0, 1), v.flatten(0, 1)))


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm: nn.Module = RMSNorm(shape.hidden, shape.rms_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.rms_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, cache: Cache | None = None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, mask, cache)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Cache:
    """Keys and values of one layer in a buffer of fixed length, all of which is attended to: the mask hides the rest.

    A slice of the buffer would be copied by every batched product, at a quarter of the whole decoding time.
    """

    def __init__(self, batch: int, length: int, shape: Shape, dtype: torch.dtype) -> None:
        self._k = torch.zeros(batch, shape.kv_heads, length, shape.head_dim, dtype=dtype)
        self._v = torch.zeros_like(self._k)
        self.used = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = self.used + k.shape[2]
        self._k[:, :, self.used : end] = k
        self._v[:, :, self.used : end] = v
        self.used = end
        return self._k, self._v


class Llama(nn.Module):
    """The layers between embedding and final norm; logits are hidden states times the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.rms_eps)

    def forward(self, embedded: Tensor) -> Tensor:
        """Embedded tokens [B, T, hidden], unpadded or padded on the right -> hidden states after the final norm."""
        length = embedded.shape[1]
        at = torch.arange(length)
        rotation = rotations(self.shape, at[None], embedded.dtype)
        mask = causal_mask(length, embedded.dtype)
        for layer in self.layers:
            embedded = layer(embedded, rotation, mask)
        hidden: Tensor = self.norm(embedded)
        return hidden

    def decode(self, tokens: Tensor, positions: Tensor, mask: Tensor, caches: list[Cache]) -> Tensor:
        """One step with caches: tokens and positions [B, T], mask additive [B, 1, 1, T, cache] -> [B, T, hidden]."""
        x = self.embed_tokens(tokens)
        rotation = rotations(self.shape, positions, x.dtype)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, rotation, mask, cache)
        hidden: Tensor = self.norm(x)
        return hidden


def rotations(shape: Shape, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, 1, T, D] of the rotary embedding at positions [B, T]."""
    rates = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
    angles = (positions.float()[..., None] * rates).repeat(1, 1, 2)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def causal_mask(length: int, dtype: torch.dtype) -> Tensor:
    """Additive [T, T]: -inf where a key lies after its query."""
    return torch.full((length, length), float("-inf"), dtype=dtype).triu(1)


def load_llama(directory: Path, dtype: torch.dtype) -> Llama:
    """A checkpoint with tied embeddings, ready to run. Raises OSError or ValueError where it is not one."""
    config = json.loads((directory / "config.json").read_text())
    model = Llama(shape_of(config)).to(dtype)
    with safe_open(directory / "model.safetensors", "pt") as file:
        tensors = {name.removeprefix("model."): file.get_tensor(name).to(dtype) for name in file.keys()}  # noqa: SIM118
    model.load_state_dict(tensors)
    return model.eval().requires_grad_(False)


def shape_of(config: dict[str, Any]) -> Shape:
    """The sizes in a Hugging Face Llama configuration."""
    if not config.get("tie_word_embeddings"):
        raise ValueError("only Llamas whose output matrix is the embedding are read here")
    heads = config["num_attention_heads"]
    return Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        rope_theta=config["rope_parameters"]["rope_theta"],
        rms_eps=config["rms_norm_eps"],
    )


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotation
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
