"""Tiny fp32 models with random weights, and drafters whose acceptance is a dial.

Random weights are chaotic: a drafter that is the target plus weight noise of 1 % is accepted about 60 % of the time,
one with 4 % almost never. `target_soft` damps its layers, so that the next token depends mostly on the current one; an
EAGLE head that passes the embedding through then agrees with it often.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

HIDDEN, HEADS, KV_HEADS, INTERMEDIATE = 128, 4, 2, 256
STD = 0.12
SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]


def built_once(shared: Path) -> Path:
    """The folder of the models below `shared`, made by the first of a run's processes that asks for it."""
    root = shared / "tiny-models"
    with filelock.FileLock(str(shared / "tiny-models.lock")):
        if not (root / "done").exists():
            build(root)
            (root / "done").touch()
    return root


def build(root: Path) -> None:
    """Make every model under `root`; it takes a few seconds."""
    tokenizer = _tokenizer()
    vocab = len(tokenizer)
    target = _causal(Qwen2Config, Qwen2ForCausalLM, vocab, layers=3, seed=0)
    _save(root / "target", target, tokenizer)
    for name, noise in (("draft_noisy", 0.01), ("draft_wild", 0.3)):
        _save(root / name, _noisy(target, noise), tokenizer)
    llama = _causal(LlamaConfig, LlamaForCausalLM, vocab, layers=2, seed=1)
    _save(root / "llama", llama, tokenizer)
    _save(root / "llama_draft", _noisy(llama, 0.02), tokenizer)
    soft = _damped(target, 0.006)
    _save(root / "target_soft", soft, tokenizer)
    _save_eagle(root / "eagle", vocab, tokenizer, target)
    _save_eagle3(root / "eagle3", vocab, tokenizer, target)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte level, with merges for all pairs of lower-case letters: about 1,000 tokens, nothing trained."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pairs = [(a, b) for a in letters for b in letters]
    vocab = {token: i for i, token in enumerate([*SPECIALS, *alphabet, *(a + b for a, b in pairs)])}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=pairs, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def _causal(config_class: Any, model_class: Any, vocab: int, *, layers: int, seed: int) -> Any:
    torch.manual_seed(seed)
    config = config_class(
        vocab_size=vocab,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=2048,
        initializer_range=STD,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
        dtype="float32",
    )
    return model_class(config).float().eval()


def _noisy(model: Any, noise: float) -> Any:
    """The model with Gaussian noise on every matrix, `noise` times the matrix's own standard deviation."""
    noised = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in noised.parameters():
            if weight.dim() > 1:
                weight.add_(torch.randn(weight.shape, generator=generator) * weight.std() * noise)
    return noised


def _damped(model: Any, factor: float) -> Any:
    damped = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in damped.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(factor)
    return damped


def _save(path: Path, model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    model.save_pretrained(path, safe_serialization=True)
    tokenizer.save_pretrained(path)
    (path / "generation_config.json").unlink(missing_ok=True)


def _save_eagle(path: Path, vocab: int, tokenizer: PreTrainedTokenizerFast, target: Any) -> None:
    """EAGLE head: fc passes the embedding of the last token through, the layer adds nothing."""
    weights = _layer("layers.0", HIDDEN, seed=3)
    for name in weights:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name].zero_()
    noise = torch.randn(HIDDEN, 2 * HIDDEN, generator=torch.Generator().manual_seed(5))
    weights["fc.weight"] = torch.cat([torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)], dim=1) + 0.002 * noise
    _save_head(path, weights, _head_config(vocab, "LlamaForCausalLM"), tokenizer)


def _save_eagle3(path: Path, vocab: int, tokenizer: PreTrainedTokenizerFast, target: Any) -> None:
    weights = _layer("midlayer", 2 * HIDDEN, seed=4)
    generator = torch.Generator().manual_seed(6)
    weights["midlayer.input_layernorm.weight"] = torch.ones(HIDDEN)
    weights["midlayer.hidden_norm.weight"] = torch.ones(HIDDEN)
    weights["norm.weight"] = torch.ones(HIDDEN)
    weights["fc.weight"] = torch.randn(HIDDEN, 3 * HIDDEN, generator=generator) * STD
    weights["lm_head.weight"] = target.lm_head.weight.detach().clone()
    config = _head_config(vocab, "LlamaForCausalLMEagle3") | {
        "draft_vocab_size": vocab,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
    }
    _save_head(path, weights, config, tokenizer)


def _layer(prefix: str, qkv_in: int, *, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * STD

    head = HIDDEN // HEADS
    return {
        f"{prefix}.self_attn.q_proj.weight": random(HEADS * head, qkv_in),
        f"{prefix}.self_attn.k_proj.weight": random(KV_HEADS * head, qkv_in),
        f"{prefix}.self_attn.v_proj.weight": random(KV_HEADS * head, qkv_in),
        f"{prefix}.self_attn.o_proj.weight": random(HIDDEN, HEADS * head),
        f"{prefix}.mlp.gate_proj.weight": random(INTERMEDIATE, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": random(INTERMEDIATE, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": random(HIDDEN, INTERMEDIATE),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def _head_config(vocab: int, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
        "torch_dtype": "float32",
        "rope_theta": 10000.0,
        "attention_bias": False,
    }


def _save_head(path: Path, weights: dict[str, torch.Tensor], config: dict[str, Any], tokenizer: Any) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    save_file({k: v.contiguous() for k, v in weights.items()}, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer.save_pretrained(path)
