"""The corpus: greedy continuations of the target and text that it reads, with its hidden state and best 8.

It is a directory of shards. Shard i depends on the seed and on i alone, so an interrupted run goes on where it ended.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from demo_models.llama import Cache, Llama, load_llama
from demo_models.machine_text import excerpt
from demo_models.pacing import Budget, add_options
from demo_models.places import add_work_option, read_tokenizer, target_directory
from demo_models.shards import BEST, Sequence, shard_path, write_shard
from demo_models.texts import long_logs, prompts, repetition
from vllm_hust_vspec.demo.progress import Show

NEW_TOKENS = 144
LONGEST_PROMPT = 128
BATCH = 48
TEXT_LENGTH, TEXT_BATCH = 192, 32
TEXT_EVERY = 4  # every fourth shard is real text: a forward pass is several times cheaper than decoding
_POOL = 4  # batches whose prompts are sorted by length together, so that little is padding
_ROWS = 512  # of logits at a time

_READ = (excerpt, excerpt, repetition, repetition, long_logs)

Encode = Callable[[str], list[int]]


def make_shard(target: Llama, encode: Encode, seed: int, index: int) -> list[Sequence]:
    """The sequences of one shard."""
    if index % TEXT_EVERY == TEXT_EVERY - 1:
        return read_text(target, text_windows(encode, seed, index, TEXT_BATCH))
    greedy = index // TEXT_EVERY * (TEXT_EVERY - 1) + index % TEXT_EVERY
    pool = prompt_pool(encode, seed, greedy // _POOL)
    batch = pool[greedy % _POOL * BATCH : (greedy % _POOL + 1) * BATCH]
    return go_on(target, batch, NEW_TOKENS)


def prompt_pool(encode: Encode, seed: int, number: int) -> list[tuple[str, list[int]]]:
    """Encoded training prompts of all kinds, sorted by length."""
    drawn = prompts(seed * 1_000_003 + number)
    short = ((kind, tokens) for kind, text in drawn if len(tokens := encode(text)) <= LONGEST_PROMPT)
    return sorted(islice(short, _POOL * BATCH), key=lambda prompt: len(prompt[1]))


def text_windows(encode: Encode, seed: int, index: int, how_many: int) -> list[list[int]]:
    """Stretches of real text, text that repeats itself and long logs, each TEXT_LENGTH tokens long."""
    draw = random.Random(f"text {seed} {index}")
    windows = (encode(draw.choice(_READ)(draw))[:TEXT_LENGTH] for _ in count())
    return list(islice((window for window in windows if len(window) == TEXT_LENGTH), how_many))


@torch.inference_mode()
def go_on(target: Llama, batch: list[tuple[str, list[int]]], new_tokens: int) -> list[Sequence]:
    """Prompts with the target's greedy continuations, past the end of text too, as servers that ignore it do."""
    longest = max(len(tokens) for _, tokens in batch)
    pads = torch.tensor([longest - len(tokens) for _, tokens in batch])
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for _, prompt in batch])
    length = longest + new_tokens
    dtype = target.embed_tokens.weight.dtype
    caches = [Cache(len(batch), length, target.shape, dtype) for _ in target.layers]
    mask, at = _padded_mask(pads, length, dtype), torch.arange(length)
    hidden, best, odds = [], [], []
    start, step = 0, tokens
    for end in range(longest, length):
        positions = (at[start:end] - pads[:, None]).clamp(min=0)
        hidden.append(target.decode(step, positions, mask[:, :, :, start:end], caches))
        ids, probabilities = best_tokens(target, hidden[-1])
        best.append(ids)
        odds.append(probabilities)
        start, step = end, ids[:, -1:, 0].long()
        tokens = torch.cat((tokens, step), 1)
    parts = [torch.cat(part, 1) for part in (hidden, best, odds)]
    return [
        Sequence(kind, len(prompt), tokens[row, pad : length - 1].int(), *(part[row, pad:].clone() for part in parts))
        for row, ((kind, prompt), pad) in enumerate(zip(batch, pads.tolist(), strict=True))
    ]


@torch.inference_mode()
def read_text(target: Llama, windows: list[list[int]]) -> list[Sequence]:
    """What the target thinks at each token of real text."""
    tokens = torch.tensor(windows)
    hidden = target(target.embed_tokens(tokens))
    best, odds = best_tokens(target, hidden)
    return [
        Sequence("text", tokens.shape[1], tokens[row].int(), hidden[row].clone(), best[row], odds[row])
        for row in range(len(windows))
    ]


def best_tokens(target: Llama, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The target's most likely next tokens, int32 [B, T, 8], and their probabilities, float16 [B, T, 8]."""
    ids, odds = [], []
    for rows in hidden.flatten(0, 1).split(_ROWS):
        logits = functional.linear(rows, target.embed_tokens.weight)
        top = logits.topk(BEST)
        ids.append(top.indices.int())
        odds.append((top.values.float() - logits.float().logsumexp(-1, keepdim=True)).exp().half())
    return torch.cat(ids).unflatten(0, hidden.shape[:2]), torch.cat(odds).unflatten(0, hidden.shape[:2])


def _padded_mask(pads: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Additive [B, 1, 1, T, T]: causal, padding on the left hidden, the diagonal open so that no row is empty."""
    at = torch.arange(length)
    visible = (at[None, :] <= at[:, None]) & (at >= pads[:, None, None]) | torch.eye(length, dtype=torch.bool)
    return torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, float("-inf"))[:, None, None]


def missing(work: Path, shards: int) -> Iterator[int]:
    return (index for index in range(shards) if not shard_path(work, index).exists())


@cache
def encoder(directory: Path) -> Encode:
    tokenizer = read_tokenizer(directory)
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models corpus", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shards", type=int, default=80, help="how many there shall be in the end (default 80)")
    parser.add_argument("--seed", type=int, default=0)
    add_work_option(parser)
    add_options(parser, minutes=30)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    budget = Budget(options.minutes, options.pause_while)
    todo = list(missing(options.work, options.shards))
    with Show(total=len(todo)) as show:
        directory = target_directory(show.say)
        target, encode = load_llama(directory, torch.bfloat16), encoder(directory)
        show.doing("corpus")
        for index in todo:
            if not budget.goes_on():
                show.say(f"time is up; run it again for the shards from {index} on")
                return
            made = make_shard(target, encode, options.seed, index)
            write_shard(shard_path(options.work, index), made)
            show.say(f"shard {index}: {len(made)} sequences, {sum(len(one.tokens) for one in made)} tokens")
            show.advance()
        show.say(f"the corpus in {options.work} has all {options.shards} shards")
