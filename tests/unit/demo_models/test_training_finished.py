"""The drafters and the tiny pair as they are in the repository."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from demo_models import tiny, tiny_text
from demo_models.acceptance import Tally, measure_draft
from demo_models.corpus import go_on
from demo_models.llama import Llama, load_llama
from demo_models.places import DRAFTERS, home_of
from demo_models.shards import Sequence

MOST_MB = {"draft": 30, "eagle": 9}
VOCAB = 49152
NEAR_TIE = 1e-3  # logits; a wider batch moves float32 logits of these models by less than a hundredth of it


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_drafter_is_small_bf16_and_has_a_card_with_figures(drafter: str) -> None:
    home = home_of(drafter)
    weights = home / "model.safetensors"
    assert weights.stat().st_size <= MOST_MB[drafter] * 1_000_000
    with safe_open(weights, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    assert json.loads((home / "config.json").read_text())["vocab_size"] == VOCAB
    card = (home / "README.md").read_text()
    for part in ("license: apache-2.0", "## Data", "## Recipe", "| log lines |", "| all kinds |"):
        assert part in card
    assert {path.name for path in home.iterdir()} == {"config.json", "model.safetensors", "README.md"}


@pytest.fixture(scope="module")
def pair() -> tuple[Llama, Llama]:
    target, draft = (load_llama(tiny.HOME / name, torch.float32) for name in ("target", "draft"))
    return target, draft


@pytest.fixture(scope="module")
def texts(pair: tuple[Llama, Llama]) -> dict[str, list[Sequence]]:
    draw, tokenizer = random.Random(99), tiny_text.tokenizer()
    prompts = {
        kind: [(kind, tokenizer.encode(tiny_text.prompt(kind, draw), add_special_tokens=False)) for _ in range(8)]
        for kind in tiny_text.KINDS
    }
    return {kind: go_on(pair[0], asked, 48) for kind, asked in prompts.items()}


def test_the_tiny_draft_is_accepted_and_not_alike_for_all_kinds(
    pair: tuple[Llama, Llama], texts: dict[str, list[Sequence]]
) -> None:
    lengths = {kind: measure_draft(pair[1], sequences).mean_length for kind, sequences in texts.items()}
    assert all(1.3 < length <= 4 for length in lengths.values()), lengths
    assert max(lengths.values()) - min(lengths.values()) > 0.5, lengths


def test_greedy_tokens_of_the_tiny_target_have_no_near_ties(
    pair: tuple[Llama, Llama], texts: dict[str, list[Sequence]]
) -> None:
    gaps = []
    for sequences in texts.values():
        for one in sequences:
            logits = one.hidden[one.prompt_length - 1 :].float() @ pair[0].embed_tokens.weight.T
            top = logits.topk(2).values
            gaps.append(float((top[:, 0] - top[:, 1]).min()))
    assert min(gaps) > NEAR_TIE, sorted(gaps)[:5]


def test_the_tiny_pair_is_a_few_megabytes_with_its_tokenizer() -> None:
    files = [path for path in Path(tiny.HOME).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000
    for name in tiny.SHAPES:
        assert (tiny.HOME / name / "tokenizer.json").is_file()


def test_the_tiny_models_learn_their_text() -> None:
    _, early = tiny.train_tiny(tiny.SHAPES["draft"], 2, 0)
    _, late = tiny.train_tiny(tiny.SHAPES["draft"], 25, 0)
    assert late < 0.75 * early


def test_a_tally_of_the_pair_counts_three_positions(
    pair: tuple[Llama, Llama], texts: dict[str, list[Sequence]]
) -> None:
    tally = measure_draft(pair[1], texts["counting"])
    assert isinstance(tally, Tally)
    assert list(tally.accepted) == sorted(tally.accepted, reverse=True)
    assert len(tally.accepted) == 3
