"""Trains a drafter on the corpus, a slice of time at a time: each run goes on where the one before ended."""

from __future__ import annotations

import argparse
import os
import random
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from demo_models.learners import LEARNERS, Learner
from demo_models.llama import Llama, load_llama
from demo_models.losses import Batch
from demo_models.pacing import Budget, add_options
from demo_models.places import add_work_option, target_directory
from demo_models.shards import Sequence, read_corpus
from vllm_hust_vspec.demo.progress import Show

_WARM_UP = 50  # steps
_OTHERS = 1024  # random candidates beside a batch's own
_AVERAGE = 0.998
_HELD_BACK = 61  # every so many-th sequence is for validation
_SAVE_S = 60
_TELL_S = 60


class Training:
    """A drafter, the running average of its weights, and all that is needed to go on exactly.

    With the same corpus, a training that stopped and was loaded again takes the same steps as one that never stopped.
    """

    def __init__(self, learner: Learner, target: Llama, corpus: list[Sequence], seed: int = 0) -> None:
        self._learner, self._target, self._seed = learner, target, seed
        self.validation = corpus[_HELD_BACK - 1 :: _HELD_BACK] or corpus
        self._lessons = [one for number, one in enumerate(corpus) if number % _HELD_BACK != _HELD_BACK - 1]
        self.model = learner.start(target, corpus, seed)
        self.average = deepcopy(self.model).requires_grad_(False)
        self._optimizers = _optimizers(self.model, learner.lr)
        self.step = 0
        self._order: list[list[Sequence]] = []

    def advance(self, slower: float = 1.0) -> float:
        """One step, and its loss. slower: factor on the learning rate."""
        rate = self._learner.lr * min(1.0, (self.step + 1) / _WARM_UP) * slower
        with torch.autocast("cpu", torch.bfloat16):
            loss = self._learner.loss(self.model, self._target, self._next(), self._others(), self.step)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        keep = min(_AVERAGE, self.step / (self.step + 10))
        with torch.no_grad():
            for ours, theirs in zip(self.average.parameters(), self.model.parameters(), strict=True):
                ours.lerp_(theirs, 1 - keep)
        return float(loss.detach())

    @torch.no_grad()
    def validate(self, sequences: int = 16) -> list[float]:
        """How often each draft in a row of the averaged weights is right, on sequences that are never trained on."""
        batch = Batch(self.validation[:sequences], self._learner.needs_hidden)
        with torch.autocast("cpu", torch.bfloat16):
            return self._learner.agreement(self.average, self._target, batch, self._others())

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        state: dict[str, Any] = {
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
        }
        state["tokens"] = sum(len(one.tokens) for one in self._lessons)
        torch.save(state | {"optimizers": [one.state_dict() for one in self._optimizers]}, partial)
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._order = []

    def _others(self) -> Tensor:
        draw = torch.Generator().manual_seed(self._seed * 1_000_003 + self.step)
        return torch.randint(self._target.shape.vocab, (_OTHERS,), generator=draw)

    def _next(self) -> Batch:
        per_epoch = max(1, len(self._lessons) // self._learner.batch)
        epoch, at = divmod(self.step, per_epoch)
        if at == 0 or not self._order:
            self._order = self._shuffled(epoch)
        return Batch(self._order[at], self._learner.needs_hidden)

    def _shuffled(self, epoch: int) -> list[list[Sequence]]:
        """Batches of similar lengths, in random order."""
        draw, size = random.Random(f"{self._seed} {epoch}"), self._learner.batch
        lessons = sorted(self._lessons, key=lambda one: (len(one.tokens) + draw.randrange(16), draw.random()))
        batches = [lessons[at : at + size] for at in range(0, len(lessons) - size + 1, size)] or [lessons]
        draw.shuffle(batches)
        return batches


def _optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embedding and norms."""
    matrices = [one for name, one in model.named_parameters() if one.dim() == 2 and "embed" not in name]
    others = [one for name, one in model.named_parameters() if one.dim() != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models train", description=__doc__)
    parser.add_argument("drafter", choices=sorted(LEARNERS))
    parser.add_argument(
        "--decay", action="store_true", help="let the learning rate fall to 0 over this run: the last one"
    )
    parser.add_argument("--seed", type=int, default=0)
    add_work_option(parser)
    add_options(parser, minutes=20)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    state = options.work / f"{options.drafter}.pt"
    with Show(total=round(options.minutes * 60)) as show:
        corpus = read_corpus(options.work)
        target = load_llama(target_directory(show.say), torch.bfloat16)
        training = Training(LEARNERS[options.drafter], target, corpus, options.seed)
        if state.exists():
            training.load(state)
        show.say(f"{options.drafter}: {sum(len(one.tokens) for one in corpus)} tokens, from step {training.step} on")
        show.doing(options.drafter)
        _run(training, Budget(options.minutes, options.pause_while), options.decay, state, show)


def _run(training: Training, budget: Budget, decay: bool, state: Path, show: Show) -> None:
    saved = told = time.monotonic()
    while budget.goes_on():
        loss = training.advance(1 - budget.used() if decay else 1.0)
        now = time.monotonic()
        if now - told > _TELL_S:
            held = " ".join(f"{share:.3f}" for share in training.validate())
            show.say(f"step {training.step}: loss {loss:.3f}; right on sequences held back: {held}")
            show.advance(round(now - told))
            told = now
        if now - saved > _SAVE_S:
            training.save(state)
            saved = now
    training.save(state)
    show.say(f"saved {state} at step {training.step}; run it again to go on")
