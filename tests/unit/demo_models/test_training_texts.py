from __future__ import annotations

import importlib.util
from itertools import islice
from pathlib import Path

from demo_models import machine_text, tiny_text
from demo_models.texts import KINDS, prompts
from vllm_hust_vspec.demo import prompts as demo


def test_prompts_are_the_same_for_a_seed_and_others_for_another() -> None:
    first, again, other = (list(islice(prompts(seed), 3 * len(KINDS))) for seed in (5, 5, 6))
    assert first == again
    assert not {text for _, text in first} & {text for _, text in other}


def test_every_kind_comes_in_turn() -> None:
    assert [kind for kind, _ in islice(prompts(0), 2 * len(KINDS))] == [*KINDS, *KINDS]


def test_modules_of_the_demos_prompts_are_held_out() -> None:
    kept = set(machine_text.code_files())
    for module in demo._MODULES:
        found = importlib.util.find_spec(module)
        assert found is not None
        assert found.origin is not None
        source = Path(found.origin).read_text(encoding="utf-8")
        assert source not in kept, f"{module} is in the corpus and in the evaluation"


def test_no_prompt_of_the_demo_is_trained_on() -> None:
    trained = {text for _, text in islice(prompts(0), 40 * len(KINDS))}
    asked = {text for kind in demo.KINDS for text in demo.prompts(kind, 40, seed=20)}
    assert not trained & asked


def test_the_demos_words_are_not_trainings() -> None:
    texts = " ".join(text for kind, text in islice(prompts(0), 60 * len(KINDS)) if kind in ("tales", "sums", "logs"))
    words = (*demo._HEROES, *demo._TWISTS, *demo._THINGS, *demo._EVENTS)
    assert [word for word in words if word in texts] == []


def test_tiny_texts_go_through_the_tokenizer_unchanged() -> None:
    import random

    tokenizer = tiny_text.tokenizer()
    text = tiny_text.stream(random.Random(3), 500)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert text == tiny_text.stream(random.Random(3), 500)
