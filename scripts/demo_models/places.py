"""Where things are: the demo's target, the working directory, the finished drafters."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from vllm_hust_vspec.demo.model import prepare
from vllm_hust_vspec.demo.store import Say, demo_home

REPOSITORY = Path(__file__).resolve().parents[2]
DRAFTERS = ("draft", "eagle")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def target_directory(say: Say) -> Path:
    """The demo's target as a bf16 checkpoint, fetched and converted where it is not there yet."""
    return prepare(say)


def home_of(drafter: str) -> Path:
    """Where the finished drafter of this name is kept."""
    return REPOSITORY / "demo" / drafter


def read_config(directory: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return config


def read_tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


def add_work_option(parser: argparse.ArgumentParser) -> None:
    default = demo_home() / "training"
    parser.add_argument("--work", type=Path, default=default, help="corpus and training states (default: %(default)s)")
