"""Sequences with the target's hidden states and best tokens, on disk as safetensors."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

BEST = 8  # tokens whose probabilities are kept


@dataclass(frozen=True, slots=True)
class Sequence:
    """L tokens; what the target makes of each: hidden state and the most likely next tokens."""

    kind: str
    prompt_length: int
    tokens: Tensor  # int32 [L]
    hidden: Tensor  # bfloat16 [L, H], after the final norm
    best: Tensor  # int32 [L, 8], most likely first
    odds: Tensor  # float16 [L, 8], their probabilities


_FIELDS = ("tokens", "hidden", "best", "odds")


def shard_path(work: Path, index: int) -> Path:
    return work / "corpus" / f"{index:04d}.safetensors"


def write_shard(path: Path, sequences: list[Sequence]) -> None:
    """Atomically: a shard that exists is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {field: torch.cat([getattr(one, field) for one in sequences]).contiguous() for field in _FIELDS}
    about = [(one.kind, one.prompt_length, len(one.tokens)) for one in sequences]
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    save_file(tensors, partial, metadata={"sequences": json.dumps(about)})
    os.replace(partial, path)


def read_shard(path: Path) -> list[Sequence]:
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["sequences"])
        tensors = {field: file.get_tensor(field) for field in _FIELDS}
    parts = {field: tensor.split([length for *_, length in about]) for field, tensor in tensors.items()}
    return [
        Sequence(kind, prompt_length, *(parts[field][number] for field in _FIELDS))
        for number, (kind, prompt_length, _) in enumerate(about)
    ]


def read_corpus(work: Path) -> list[Sequence]:
    """All shards that exist, in order. Raises FileNotFoundError where there is none."""
    paths = sorted((work / "corpus").glob("*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"no corpus in {work}; make it first: python scripts/demo_models corpus")
    return [sequence for path in paths for sequence in read_shard(path)]
