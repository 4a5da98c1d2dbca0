from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from demo_models import eagle
from demo_models.acceptance import Tally
from demo_models.cards import write_card
from demo_models.drafters import load_draft, load_eagle
from demo_models.evaluate import report
from demo_models.export import draft_tensors, eagle_config, eagle_tensors, llama_config, write_checkpoint
from demo_models.llama import Llama
from demo_models.served import beside_tokenizer
from vllm_hust_vspec.demo.prompts import KINDS

LIKE = {"vocab_size": 260, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
ABOUT = {"steps": "12", "tokens": "3456"}


def _export_draft(target: Llama, to: Path) -> None:
    write_checkpoint(to, llama_config(target.shape, LIKE), draft_tensors(dict(target.state_dict())), ABOUT)


def test_an_exported_draft_is_a_model_for_transformers_and_for_us(target: Llama, tmp_path: Path) -> None:
    _export_draft(target, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(4, 24)[None]
    ours = load_draft(tmp_path, 260)
    assert theirs.dtype == torch.bfloat16
    assert torch.equal(theirs.lm_head.weight, theirs.model.embed_tokens.weight)
    with torch.no_grad():
        expected = theirs.float().model(input_ids=tokens).last_hidden_state
    ours = ours.float()
    assert torch.allclose(ours(ours.embed_tokens(tokens)), expected, atol=1e-3)


def test_an_exported_head_comes_back_and_leaves_the_shared_matrices_out(target: Llama, tmp_path: Path) -> None:
    head = eagle.from_target(target, 1.0).bfloat16()
    config = eagle_config(llama_config(target.shape, LIKE))
    write_checkpoint(tmp_path, config, eagle_tensors(dict(head.state_dict())), ABOUT)
    back = load_eagle(tmp_path, target.shape)
    names = set(back.state_dict())
    assert all(torch.equal(one, head.state_dict()[name]) for name, one in back.state_dict().items())
    assert "fc.weight" in names
    assert not [name for name in names if "embed" in name or "lm_head" in name or "input_layernorm" in name]
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 1


def test_a_missing_or_foreign_drafter_is_refused_in_one_line(target: Llama, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="demo_models export"):
        load_draft(tmp_path, 260)
    _export_draft(target, tmp_path)
    with pytest.raises(ValueError, match="260 tokens, the target 49152"):
        load_draft(tmp_path, 49152)
    with pytest.raises(ValueError, match="no EAGLE head"):
        load_eagle(tmp_path, target.shape)


def test_a_drafter_is_served_beside_the_targets_tokenizer(target: Llama, tmp_path: Path) -> None:
    for name in ("drafter", "target", "both"):
        (tmp_path / name).mkdir()
    _export_draft(target, tmp_path / "drafter")
    (tmp_path / "target" / "tokenizer.json").write_text("{}")
    (tmp_path / "target" / "tokenizer_config.json").write_text("{}")
    both = beside_tokenizer(tmp_path / "drafter", tmp_path / "target", tmp_path / "both")
    assert {path.name for path in both.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_the_report_says_what_is_missing_and_the_card_shows_it(target: Llama, tmp_path: Path) -> None:
    tallies = {kind: Tally(10, (5, 2, 0)) for kind in KINDS} | {"story": Tally(50, (0, 0, 0))}
    figures = report("draft", tallies)
    assert figures["rows"]["log lines"] == {"verifications": 10, "per_position": [0.5, 0.2, 0.0], "mean_length": 1.7}
    assert figures["rows"]["all kinds"]["mean_length"] == pytest.approx(1 + 28 / 90, abs=1e-3)
    assert figures["missing"] == {"easy": 0.5, "all": pytest.approx(1.5 - 1 - 28 / 90, abs=1e-3)}
    _export_draft(target, tmp_path)
    write_card("draft", tmp_path, figures, 16, 128)
    card = (tmp_path / "README.md").read_text()
    assert "| log lines | 0.50 | 0.20 | 0.00 | 1.70 |" in card
    assert "0.50 is missing on easy" in card
    assert "3,456 tokens" in card
    assert "12 steps" in card
