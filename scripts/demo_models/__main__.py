"""python scripts/demo_models VERB: corpus, train, export, evaluate, served, tiny."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo_models.errors import guarded

VERBS = ("corpus", "train", "export", "evaluate", "served", "tiny")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(f"usage: python scripts/demo_models {{{','.join(VERBS)}}} [--help]", file=sys.stderr)
        raise SystemExit(2)
    guarded(sys.argv[1], import_module(f"demo_models.{sys.argv[1]}").main, sys.argv[2:])
