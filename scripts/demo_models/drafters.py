"""Reads finished drafters back, as they are kept under demo/."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from demo_models.eagle import EagleHead
from demo_models.llama import Llama, Shape, load_llama


def load_draft(directory: Path, vocab: int) -> Llama:
    """Raises FileNotFoundError where there is none, ValueError where it has another vocabulary than the target."""
    _require(directory)
    model = load_llama(directory, torch.bfloat16)
    if model.shape.vocab != vocab:
        raise ValueError(f"the draft model in {directory} has {model.shape.vocab} tokens, the target {vocab}")
    return model


def load_eagle(directory: Path, target: Shape) -> EagleHead:
    """Raises FileNotFoundError where there is none, ValueError where it does not fit the target."""
    _require(directory)
    head = EagleHead(target).to(torch.bfloat16)
    try:
        head.load_state_dict(load_file(directory / "model.safetensors"))
    except RuntimeError:
        raise ValueError(f"{directory} holds no EAGLE head for this target; export it again") from None
    return head.eval().requires_grad_(False)


def _require(directory: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / name} is not there; make it: python scripts/demo_models export")
