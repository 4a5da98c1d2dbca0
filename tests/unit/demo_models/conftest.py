"""A target of a few thousand weights, and a corpus of its own text: enough to take every step in seconds."""

from __future__ import annotations

import pytest
import torch

from demo_models import tiny_text
from demo_models.corpus import Encode, go_on, read_text
from demo_models.llama import Llama, Shape
from demo_models.shards import Sequence

SHAPE = Shape(vocab=260, hidden=32, intermediate=64, layers=2, heads=4, kv_heads=2, head_dim=8)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target() -> Llama:
    """Random weights, float32, large enough that its choices are its own."""
    torch.manual_seed(0)
    model = Llama(SHAPE)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def encode() -> Encode:
    tokenizer = tiny_text.tokenizer()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(scope="session")
def corpus(target: Llama, encode: Encode) -> list[Sequence]:
    prompts = [(f"kind {number % 2}", encode(f"{number} and {number * 7}:")) for number in range(24)]
    windows = [encode(f"{number}, then {number + 1}, then {number + 2}, ")[:16] for number in range(10, 34)]
    return go_on(target, prompts, 24) + read_text(target, windows)
