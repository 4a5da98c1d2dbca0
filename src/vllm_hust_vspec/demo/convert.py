"""GGUF to a bf16 checkpoint that vLLM loads. Runs in a process of its own: it imports torch and transformers.

`python -m vllm_hust_vspec.demo.convert FILE.gguf DIRECTORY`
"""

import json
import sys
from pathlib import Path


def convert(gguf: Path, target: Path) -> None:
    """Write config, tokenizer and bf16 weights of a GGUF language model into the empty directory `target`."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(gguf.parent)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf.name)
    config = model.config.to_dict()
    for unwanted in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(unwanted, None)
    config |= {"dtype": "bfloat16", "architectures": [type(model).__name__]}
    (target / "config.json").write_text(json.dumps(config, indent=1))
    # lm_head shares the embedding's storage, which safetensors refuses to write twice.
    tied = model.config.tie_word_embeddings
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
