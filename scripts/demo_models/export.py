"""Writes a trained drafter as a checkpoint that vLLM loads: config.json and model.safetensors in bf16."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from demo_models.draft import draft_shape
from demo_models.learners import LEARNERS
from demo_models.llama import Shape
from demo_models.places import add_work_option, home_of, read_config, target_directory

_KEPT = ("vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")


def write_checkpoint(
    directory: Path, config: dict[str, Any], tensors: dict[str, Tensor], about: dict[str, str]
) -> None:
    """Atomically, each file by itself. about: goes into the header of the tensors."""
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f".{os.getpid()}.partial"
    partial.write_text(json.dumps(config, indent=1) + "\n")
    os.replace(partial, directory / "config.json")
    save_file({name: one.contiguous() for name, one in tensors.items()}, partial, metadata={"format": "pt"} | about)
    partial.chmod(0o644)
    os.replace(partial, directory / "model.safetensors")


def llama_config(shape: Shape, like: dict[str, Any], dtype: str = "bfloat16") -> dict[str, Any]:
    """A Hugging Face configuration; token ids and limits are those of the configuration `like`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": dtype,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
    } | {name: like[name] for name in _KEPT}


def eagle_config(target: dict[str, Any]) -> dict[str, Any]:
    """The target's configuration with one layer: vLLM reads an EAGLE head's sizes as those of a Llama."""
    left_out = ("transformers_version", "id2label", "label2id", "problem_type")
    return {name: value for name, value in target.items() if name not in left_out} | {"num_hidden_layers": 1}


def draft_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"model.{name}": weight.to(torch.bfloat16) for name, weight in weights.items()}


def eagle_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without embedding and output matrix: vLLM then takes the target's."""
    return {name: weight.to(torch.bfloat16) for name, weight in weights.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models export", description=__doc__)
    parser.add_argument("drafter", choices=sorted(LEARNERS))
    parser.add_argument("--to", type=Path, metavar="DIRECTORY", help="default: demo/ and the drafter's name")
    add_work_option(parser)
    options = parser.parse_args(arguments)
    path = options.work / f"{options.drafter}.pt"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; train first: python scripts/demo_models train {options.drafter}")
    state = torch.load(path, weights_only=True)
    target = read_config(target_directory(print))
    if options.drafter == "eagle":
        config, tensors = eagle_config(target), eagle_tensors(state["average"])
    else:
        config = llama_config(draft_shape(target["vocab_size"]), target)
        tensors = draft_tensors(state["average"])
    to = options.to or home_of(options.drafter)
    about = {"steps": str(state["step"]), "tokens": str(state["tokens"])}
    write_checkpoint(to, config, tensors, about)
    size = (to / "model.safetensors").stat().st_size
    print(f"{to}: {size / 1e6:.1f} MB, step {state['step']}")
