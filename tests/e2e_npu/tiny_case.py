"""CPU time of a tiny end-to-end case on the emulated NPU: engine start, 3 prompts of 24 tokens, target and draft model.

Run inside the emulated environment, in the variables that `./manage.sh --dry-run test --host emulated-npu` shows:
python tests/e2e_npu/tiny_case.py
"""

from __future__ import annotations

import os
from pathlib import Path

PAIR = Path(__file__).parents[1] / "models" / "tiny_pair"
PROMPTS = ("one two three four", "report: all is", "once upon a time")
TOKENS = 24


def main() -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(PAIR / "target"),
        dtype="float32",
        max_model_len=256,
        block_size=128,
        kv_cache_memory_bytes=64 << 20,
        gpu_memory_utilization=0.5,
        enforce_eager=True,
        speculative_config={
            "method": "draft_model",
            "model": str(PAIR / "draft"),
            "num_speculative_tokens": 4,
            "enforce_eager": True,
        },
    )
    done = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True), use_tqdm=False)
    used = os.times()
    seconds = used.user + used.system + used.children_user + used.children_system
    tokens = sum(len(answer.outputs[0].token_ids) for answer in done)
    print(f"emulated NPU, target + draft model, {len(PROMPTS)} prompts: {tokens} tokens, {seconds:.1f} s of CPU time")


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    main()
