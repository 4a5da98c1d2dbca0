"""A tiny trained target and draft model, float32, for tests that need real acceptance within seconds."""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_models import tiny_text
from demo_models.export import llama_config, write_checkpoint
from demo_models.llama import Llama, Shape
from demo_models.pacing import Budget, add_pause_option
from demo_models.places import REPOSITORY
from vllm_hust_vspec.demo.progress import Show

HOME = REPOSITORY / "tests" / "models" / "tiny_pair"
VOCAB = 260
SHAPES = {
    "target": Shape(VOCAB, hidden=128, intermediate=384, layers=3, heads=4, kv_heads=2, head_dim=32),
    "draft": Shape(VOCAB, hidden=64, intermediate=128, layers=1, heads=2, kv_heads=2, head_dim=32),
}
_LENGTH, _BATCH = 192, 24
_LR = 4e-3
_IDS = {"vocab_size": VOCAB, "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}


def train_tiny(
    shape: Shape, steps: int, seed: int, show: Show | None = None, pause_while: Path | None = None
) -> tuple[Llama, float]:
    """A model of generated text after so many steps, and the last loss in nats per token."""
    torch.manual_seed(seed)
    draw, encode = random.Random(f"tiny {seed}"), tiny_text.tokenizer()
    model = Llama(shape)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.05 if "embed" in name else 0.04)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LR, total_steps=steps + 1, pct_start=0.1)
    loss, budget = torch.zeros(()), Budget(math.inf, pause_while)
    for step in range(steps):
        budget.goes_on()
        text = [tiny_text.stream(draw, _LENGTH + 1) for _ in range(_BATCH)]
        loss = _loss(model, torch.tensor(encode(text)["input_ids"]))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if show is not None:
            show.advance()
            if step % 100 == 99:
                show.say(f"step {step + 1} of {steps}: loss {loss:.3f}")
    return model.eval().requires_grad_(False), float(loss.detach())


def write_tiny(name: str, model: Llama, home: Path, about: dict[str, str]) -> None:
    """Checkpoint and tokenizer in `home`/`name`."""
    tensors = {f"model.{key}": weight for key, weight in model.state_dict().items()}
    write_checkpoint(home / name, llama_config(model.shape, _IDS, "float32"), tensors, about)
    tiny_text.tokenizer().save_pretrained(home / name)


def _loss(model: Llama, tokens: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(model.embed_tokens(tokens[:, :-1]))
        logits = functional.linear(hidden, model.embed_tokens.weight)
    return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models tiny", description=__doc__)
    parser.add_argument("--to", type=Path, default=HOME, metavar="DIRECTORY", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=800, help="of each model (default 800)")
    parser.add_argument("--seed", type=int, default=0)
    add_pause_option(parser)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with Show(total=options.steps * len(SHAPES)) as show:
        for name, shape in SHAPES.items():
            show.doing(f"tiny {name}")
            model, loss = train_tiny(shape, options.steps, options.seed, show, options.pause_while)
            write_tiny(name, model, options.to, {"steps": str(options.steps), "loss": f"{loss:.3f}"})
            show.say(f"{options.to / name}: loss {loss:.3f}")
