"""Generated text for the tiny pair: three kinds, from rules alone to rules with choices.

Choices are skewed, so that a trained model has a clear favourite and its greedy tokens no near ties.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_SPECIALS = ("<unk>", "<s>", "</s>", "<pad>")
_PARTS = ("pump", "gate", "lamp", "belt", "door")
_STATES = ("opened", "closed", "checked", "cleaned")
_TRAITS = ("old", "red", "sly", "kind", "tall", "lazy")
_ANIMALS = ("fox", "crow", "bear", "hare", "goat", "owl", "mouse")
_VERBS = ("met", "saw", "called", "helped", "chased")
_PLACES = ("river", "hill", "mill", "wood", "well")


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and four special ones: 260."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*_SPECIALS, *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def counting(draw: random.Random) -> str:
    """1 + 3: 4 7 10 13 ..."""
    number, step = draw.randrange(90), draw.randrange(1, 10)
    return f"count {number} by {step}: " + " ".join(str(number + step * turn) for turn in range(12)) + "\n"


def reports(draw: random.Random) -> str:
    hour, part = draw.randrange(24), draw.choice(_PARTS)
    minutes = range(draw.randrange(50), 60, 2)
    return "".join(
        f"{hour:02d}:{minute:02d} {part} {_skewed(draw, '123')} {_skewed(draw, _STATES)}, "
        f"level {_skewed(draw, '537')}0\n"
        for minute in minutes
    )


def tales(draw: random.Random) -> str:
    return "".join(
        f"the {_skewed(draw, _TRAITS)} {_skewed(draw, _ANIMALS)} {_skewed(draw, _VERBS)} "
        f"the {_skewed(draw, _TRAITS)} {_skewed(draw, _ANIMALS)} at the {_skewed(draw, _PLACES)}. "
        for _ in range(draw.randrange(2, 6))
    )


KINDS: dict[str, Callable[[random.Random], str]] = {"counting": counting, "reports": reports, "tales": tales}


def stream(draw: random.Random, characters: int) -> str:
    """Pieces of all kinds in random order."""
    text = ""
    while len(text) < characters:
        text += draw.choice(list(KINDS.values()))(draw)
    return text[:characters]


def prompt(kind: str, draw: random.Random) -> str:
    """The beginning of a text of this kind, about two thirds of it."""
    text = KINDS[kind](draw)
    return text[: 2 * len(text) // 3]


def _skewed(draw: random.Random, choices: Sequence[str]) -> str:
    """Each choice three times as likely as the next one."""
    for choice in choices[:-1]:
        if draw.random() < 2 / 3:
            return choice
    return choices[-1]
