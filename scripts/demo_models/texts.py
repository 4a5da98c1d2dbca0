"""Training prompts, seeded. Templates, words and modules are not those of the demo, on which drafters are measured."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from demo_models import words
from demo_models.machine_text import code_files, prose_files

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def prompts(seed: int) -> Iterator[tuple[str, str]]:
    """Endless (kind, prompt) pairs, all kinds in turn."""
    draw = random.Random(f"training prompts {seed}")
    while True:
        for kind, make in KINDS.items():
            yield kind, make(draw)


def logs(draw: random.Random) -> str:
    return _lines(draw, (2, 3, 4))


def _lines(draw: random.Random, how_many: tuple[int, ...]) -> str:
    clock, layout = draw.choice(words.CLOCKS), draw.choice(words.LAYOUTS)
    levels, parts = draw.sample(words.LEVELS, 3), draw.sample(words.PARTS, draw.choice((1, 1, 2, 3)))
    happened = draw.sample(words.HAPPENED, draw.choice((2, 3, 5)))
    second, pid = draw.randrange(80000), draw.randrange(100, 9000)
    day, step = draw.randrange(1, 29), draw.choice((1, 7, 60))
    lines = []
    for _ in range(draw.choice(how_many)):
        second += draw.randrange(1, 2 * step + 1)
        stamp = clock.format(d=day, h=second // 3600, m=second // 60 % 60, s=second % 60, ms=draw.randrange(1000))
        what = draw.choice(happened).format(draw.randrange(1, 999))
        lines.append(layout.format(clock=stamp, level=draw.choice(levels), part=draw.choice(parts), what=what, pid=pid))
    return "\n".join(lines) + "\n"


def long_logs(draw: random.Random) -> str:
    """A log of many lines, or many records of one form."""
    return _lines(draw, (24,)) if draw.random() < 0.7 else _records(draw, 24)


def records(draw: random.Random) -> str:
    return _records(draw, 3)


def _records(draw: random.Random, how_many: int) -> str:
    """Rows of JSON or CSV."""
    fields = draw.sample(("id", "name", "price", "count", "city", "status", "score", "year", "owner", "active"), 4)
    rows = [{field: _value(draw, field) for field in fields} for _ in range(how_many)]
    if draw.random() < 0.5:
        return "".join(json.dumps(row) + "\n" for row in rows)
    return ",".join(fields) + "\n" + "".join(",".join(str(value) for value in row.values()) + "\n" for row in rows)


def copies(draw: random.Random) -> str:
    text = draw.choice((_sentences, _list, _passage))(draw)
    layout = draw.randrange(5)
    if layout == 0:
        return CHAT.format(f"Repeat this three times, word for word:\n{text}") + text + "\n"
    if layout == 1:
        return f"{text}\n\n{text}\n\n{text[: draw.randrange(len(text) // 2)]}"
    if layout == 2:
        return f"Original: {text}\nRepeated: {text}\nRepeated again:"
    if layout == 3:
        return f"Say it once more.\nA: {text}\nB: {text}\nA: {text}\nB:"
    return f'first = "{text}"\nsecond = "{text}"\nthird = "'


def code(draw: random.Random) -> str:
    """The beginning of a definition in a module that the demo does not use."""
    while True:
        source = draw.choice(code_files())
        starts = [at for at in range(len(source)) if source.startswith(("\ndef ", "\nclass ", "\n    def "), at)]
        if starts:
            start = draw.choice(starts) + 1
            excerpt = source[start : start + draw.randrange(150, 450)]
            if "\n" in excerpt[80:]:
                return excerpt[: excerpt.rfind("\n") + 1]


def sums(draw: random.Random) -> str:
    a, b, c = draw.sample(words.WHO, 3)
    what, many, some, few = (
        draw.choice(words.COUNTED),
        draw.randrange(10, 99),
        draw.randrange(3, 15),
        draw.randrange(2, 9),
    )
    question = draw.choice(
        (
            f"{a} picks {many} {what} on Monday and {some} on Tuesday, then eats {few}. How many {what} does {a} have?",
            f"{a}, {b} and {c} share {many} {what}. {b} takes {some}. How many do the others get?",
            f"One of the {what} weighs {few} grams. What do {many} of them weigh? And {some}?",
            f"A train with {many} seats stops {few} times; {some} people get on at each stop. How many seats are free?",
            f"If {a} is {many} years old and {b} is {some} years younger, how old were they {few} years ago?",
            f"Calculate {many} x {few} + {some} - {draw.randrange(1, 30)}.",
            f"{a} saves ${some} every week. After how many weeks can {a} pay ${many * few} for {what}?",
        )
    )
    ending = draw.choice(
        (" Show your work.", " Think step by step.", " Give the calculation.", "", " Solve it slowly.")
    )
    return CHAT.format(question + ending)


def tales(draw: random.Random) -> str:
    trait = draw.choice(words.TRAITS)
    who = f"{_article(trait)} {trait} {draw.choice(words.BEINGS)} that {draw.choice(words.TURNS)}"
    ask = draw.choice(
        (
            "Tell me a tale of {}.",
            "Write a fairy tale about {}.",
            "Make up a bedtime story: {}.",
            "Write the first chapter of a novel with {}.",
            "Invent a legend of {}, in many paragraphs.",
            "I need a very long story. It is about {}.",
        )
    )
    return CHAT.format(ask.format(who))


def explanations(draw: random.Random) -> str:
    ask = draw.choice(
        (
            "Explain {} to a child.",
            "What should I know about {}?",
            "Write an essay about {}.",
            "List ten facts about {}.",
            "Give me a plan to learn about {}.",
            "Why is {} important?",
        )
    )
    return CHAT.format(ask.format(draw.choice(words.SUBJECTS)))


def repetition(draw: random.Random) -> str:
    """A text again and again."""
    text = draw.choice((_sentences, _list, _passage, logs))(draw)
    between = draw.choice(("\n", "\n\n", " ", "\n- ", "\nB: ", "\nAgain: ", "\n# "))
    return between.join([text] * 12)


def passages(draw: random.Random) -> str:
    """The beginning of a passage of documentation or of a licence."""
    return _passage(draw)


def _passage(draw: random.Random) -> str:
    text = draw.choice(prose_files())
    start = draw.randrange(max(1, len(text) - 400))
    start = text.find(" ", start) + 1
    return " ".join(text[start : start + draw.randrange(150, 300)].split()) or text[:200]


def _sentences(draw: random.Random) -> str:
    return " ".join(
        f"{draw.choice(words.ROLES).capitalize()} {draw.choice(words.TRAITS)} {draw.choice(words.BEINGS)} "
        f"{draw.choice(words.VERBS)} the {draw.choice(words.THINGS)} "
        f"of {draw.choice(words.WHO)} {draw.choice(words.WHEN)}."
        for _ in range(draw.choice((1, 2, 3)))
    )


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _list(draw: random.Random) -> str:
    items = draw.sample(words.COUNTED + words.THINGS + words.BEINGS, draw.randrange(5, 14))
    return draw.choice((", ", " ", "; ")).join(items) + "."


def _value(draw: random.Random, field: str) -> object:
    if field in ("id", "count", "score"):
        return draw.randrange(1, 5000)
    if field == "price":
        return draw.randrange(100, 9999) / 100
    if field == "year":
        return draw.randrange(1950, 2024)
    if field == "active":
        return draw.choice((True, False))
    return draw.choice({"name": words.WHO, "owner": words.WHO, "city": words.CITIES}.get(field, words.LEVELS))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "logs": logs,
    "tales": tales,
    "copies": copies,
    "code": code,
    "sums": sums,
    "records": records,
    "explanations": explanations,
    "passages": passages,
}
