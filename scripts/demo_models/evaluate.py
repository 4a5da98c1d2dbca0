"""Measures the drafters' acceptance on the demo's prompts, whose templates no training has seen.

The target goes on greedily from prompts of each kind; the drafters are then counted on that text as greedy speculative
decoding with gamma 3 would meet it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file is also a command

import torch
from rich.console import Console
from rich.table import Table

from demo_models.acceptance import GAMMA, Tally, add, measure_draft, measure_eagle
from demo_models.cards import write_card
from demo_models.corpus import Encode, encoder, go_on
from demo_models.drafters import load_draft, load_eagle
from demo_models.errors import guarded
from demo_models.llama import Llama, load_llama
from demo_models.places import DRAFTERS, home_of, target_directory
from demo_models.shards import Sequence
from vllm_hust_vspec.demo.progress import Show
from vllm_hust_vspec.demo.prompts import KINDS, prompts

EASY = ("log lines", "copying", "code")
SEED = 20  # other draws than the demo's own
PROMPT = 160  # tokens; a longer prompt loses its beginning


@dataclass(frozen=True, slots=True)
class Goal:
    """Mean acceptance lengths to reach."""

    easy: float
    all: float


GOALS = {"draft": Goal(2.2, 1.5), "eagle": Goal(2.0, 1.5)}


def held_out(target: Llama, encode: Encode, per_kind: int, tokens: int) -> dict[str, list[Sequence]]:
    """Greedy continuations of the demo's prompts, by kind."""
    return {
        kind: go_on(target, [(kind, encode(text)[-PROMPT:]) for text in prompts(kind, per_kind, SEED)], tokens)
        for kind in KINDS
    }


def measure(drafter: str, directory: Path, target: Llama, texts: dict[str, list[Sequence]]) -> dict[str, Tally]:
    """Acceptance of the drafter in a directory, by kind of text."""
    if drafter == "eagle":
        head = load_eagle(directory, target.shape)
        return {kind: measure_eagle(head, target, sequences) for kind, sequences in texts.items()}
    model = load_draft(directory, target.shape.vocab)
    return {kind: measure_draft(model, sequences) for kind, sequences in texts.items()}


def report(drafter: str, tallies: dict[str, Tally]) -> dict[str, Any]:
    """What is printed and written: each kind and position, the two means that have goals, and what they lack."""
    rows = dict(tallies) | {"easy kinds": add(tallies[kind] for kind in EASY), "all kinds": add(tallies.values())}
    goal = GOALS[drafter]
    return {
        "rows": {
            name: {
                "verifications": tally.verifications,
                "per_position": [round(share, 4) for share in tally.per_position],
                "mean_length": round(tally.mean_length, 3),
            }
            for name, tally in rows.items()
        },
        "goal": asdict(goal),
        "missing": {
            "easy": round(max(0.0, goal.easy - rows["easy kinds"].mean_length), 3),
            "all": round(max(0.0, goal.all - rows["all kinds"].mean_length), 3),
        },
    }


def table(drafter: str, figures: dict[str, Any]) -> Table:
    shown = Table(title=f"{drafter}: share accepted by position, gamma {GAMMA}, greedy", title_justify="left")
    for column in ("text", *(f"pos. {number + 1}" for number in range(GAMMA)), "tokens per verification", "goal"):
        shown.add_column(column, justify="left" if column == "text" else "right")
    goals = {"easy kinds": figures["goal"]["easy"], "all kinds": figures["goal"]["all"]}
    for name, row in figures["rows"].items():
        shares = [f"{share:.2f}" for share in row["per_position"]]
        goal = f"{goals[name]:.1f}" if name in goals else ""
        shown.add_row(name, *shares, f"{row['mean_length']:.2f}", goal)
    return shown


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models evaluate", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--prompts", type=int, default=16, help="of each kind (default 16)")
    parser.add_argument("--tokens", type=int, default=128, help="that the target adds to each (default 128)")
    parser.add_argument("--cards", action="store_true", help="write the figures into the drafters' model cards")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads of PyTorch (default 1)")
    for drafter in DRAFTERS:
        parser.add_argument(f"--{drafter}", type=Path, default=home_of(drafter), help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with Show(total=1 + len(DRAFTERS)) as show:
        directory = target_directory(show.say)
        show.doing("the target goes on")
        target = load_llama(directory, torch.bfloat16)
        texts = held_out(target, encoder(directory), options.prompts, options.tokens)
        figures: dict[str, Any] = {}
        for drafter in DRAFTERS:
            show.advance()
            show.doing(drafter)
            figures[drafter] = report(drafter, measure(drafter, getattr(options, drafter), target, texts))
    for drafter in DRAFTERS:
        Console().print(table(drafter, figures[drafter]))
        if options.cards:
            write_card(drafter, getattr(options, drafter), figures[drafter], options.prompts, options.tokens)
    if options.json:
        _write(options.json, {"gamma": GAMMA, "prompts": options.prompts, "tokens": options.tokens} | figures)


def _write(path: Path, figures: dict[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(figures, indent=1) + "\n")
    os.replace(partial, path)


if __name__ == "__main__":
    guarded("evaluate", main, sys.argv[1:])
