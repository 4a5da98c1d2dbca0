"""Prompts of five kinds, seeded: the same on every machine with the same Python."""

import importlib.util
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_MODULES = (
    "argparse",
    "calendar",
    "cmd",
    "configparser",
    "csv",
    "fractions",
    "ftplib",
    "imaplib",
    "mailbox",
    "optparse",
    "pstats",
    "shlex",
    "statistics",
    "string",
    "tarfile",
    "textwrap",
    "uuid",
    "wave",
    "zipapp",
    "zipfile",
)
_LEVELS = ("INFO", "INFO", "INFO", "INFO", "DEBUG", "WARN")
_SERVICES = ("auth", "billing", "catalog", "gateway", "mailer", "search")
_EVENTS = ("request finished", "session opened", "cache refreshed", "token renewed", "job queued")
_PLACES = ("harbour", "market square", "old library", "railway station", "northern valley", "botanical garden")
_ACTORS = ("engineer", "librarian", "baker", "ferryman", "gardener", "surveyor")
_DEEDS = (
    "keeps a record of every visitor",
    "repairs the clocks before winter",
    "writes letters to a friend abroad",
    "counts the boats that return at night",
    "teaches children how to read maps",
    "collects stones from the river",
)
_NAMES = ("Ada", "Boris", "Chen", "Dalia", "Elias", "Fatma", "Goran", "Hana", "Ivo", "Jana")
_THINGS = ("pears", "notebooks", "candles", "bricks", "postcards", "buttons", "lemons", "pencils")
_MOODS = ("patient", "nervous", "forgetful", "proud", "curious", "sleepy")
_HEROES = ("lighthouse keeper", "violin maker", "street cat", "retired pilot", "young astronomer", "glass blower")
_TWISTS = (
    "finds a letter written to nobody",
    "must cross a frozen lake before dawn",
    "discovers that the village clock runs backwards",
    "has to return a borrowed umbrella",
    "hears music from an empty house",
    "learns the language of birds",
)
_EXCERPT = 420  # characters


def prompts(kind: str, count: int, seed: int = 0) -> list[str]:
    """`count` different prompts of a kind out of `KINDS`."""
    draw = random.Random(f"{kind} {seed}")
    made: dict[str, None] = {}
    while len(made) < count:
        made[KINDS[kind](draw)] = None
    return list(made)


def log_lines(draw: random.Random) -> str:
    day, hour, service = draw.randrange(10, 28), draw.randrange(24), draw.choice(_SERVICES)
    return "".join(
        f"2026-05-{day} {hour:02d}:{minute:02d}:{draw.randrange(60):02d} {draw.choice(_LEVELS)} "
        f"[{service}] {draw.choice(_EVENTS)} in {draw.randrange(3, 400)} ms\n"
        for minute in range(3)
    )


def copying(draw: random.Random) -> str:
    text = " ".join(
        f"The {draw.choice(_MOODS)} {actor} of the {draw.choice(_PLACES)} {draw.choice(_DEEDS)}."
        for actor in draw.sample(_ACTORS, 2)
    )
    return f"Copy the text again and again.\nText: {text}\nCopy 1: {text}\nCopy 2:"


def code(draw: random.Random) -> str:
    """The beginning of a function or class of Python's own library, for the model to go on with."""
    while True:
        source = _source(draw.choice(_MODULES))
        starts = [at for at in range(len(source)) if source.startswith(("\ndef ", "\nclass "), at)]
        if starts:
            start = draw.choice(starts) + 1
            excerpt = source[start : start + _EXCERPT]
            if len(excerpt) == _EXCERPT:
                return excerpt[: excerpt.rfind("\n") + 1]


def arithmetic(draw: random.Random) -> str:
    one, other = draw.sample(_NAMES, 2)
    things, many, few, part = draw.choice(_THINGS), draw.randrange(12, 90), draw.randrange(3, 12), draw.randrange(2, 9)
    question = draw.choice(
        (
            f"{one} has {many} {things}. {other} gives {one} {few} more, and {part} get lost. How many are left?",
            f"{one} fills {few} boxes with {many} {things} each and sells {part} of the boxes. How many remain?",
            f"{things.capitalize()} cost {part} coins. {one} buys {few}, {other} buys {many}. What is the total?",
        )
    )
    return _CHAT.format(f"{question} Explain every step.")


def story(draw: random.Random) -> str:
    return _CHAT.format(
        f"Write a long story about a {draw.choice(_MOODS)} {draw.choice(_HEROES)} who {draw.choice(_TWISTS)}."
    )


@cache
def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return ""
    return Path(found.origin).read_text(encoding="utf-8")


KINDS: dict[str, Callable[[random.Random], str]] = {
    "log lines": log_lines,
    "copying": copying,
    "code": code,
    "arithmetic": arithmetic,
    "story": story,
}
