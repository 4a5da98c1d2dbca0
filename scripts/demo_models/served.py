"""Measures a drafter inside vLLM, on the prompts of `evaluate`: the figures should agree but for the last digits."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from demo_models.acceptance import GAMMA, Tally
from demo_models.evaluate import PROMPT, SEED, report, table
from demo_models.places import DRAFTERS, TOKENIZER_FILES, home_of, read_tokenizer, target_directory
from vllm_hust_vspec.demo.prompts import KINDS, prompts

_METHODS = {"draft": "draft_model", "eagle": "eagle"}
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "workqueue",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
}


def beside_tokenizer(drafter: Path, target: Path, to: Path) -> Path:
    """The drafter's files and the target's tokenizer in one directory, as links: what vLLM wants to find."""
    for path in (*drafter.iterdir(), *(target / name for name in TOKENIZER_FILES)):
        (to / path.name).symlink_to(path.resolve())
    return to


def difference(after: dict[str, list[int]], before: dict[str, list[int]]) -> Tally:
    """What two readings of vLLM's counters have between them."""
    accepted = [new - old for new, old in zip(after["accepted"], before["accepted"], strict=True)]
    return Tally(after["drafts"][0] - before["drafts"][0], tuple(accepted))


def _read(llm: Any) -> dict[str, list[int]]:
    counters = {metric.name: metric for metric in llm.get_metrics() if "spec_decode" in metric.name}
    if not counters:
        return {"drafts": [0], "accepted": [0] * GAMMA}
    return {
        "drafts": [int(counters["vllm:spec_decode_num_drafts"].value)],
        "accepted": list(counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="demo_models served", description=__doc__)
    parser.add_argument("drafter", choices=DRAFTERS)
    parser.add_argument("--directory", type=Path, help="default: demo/ and the drafter's name")
    parser.add_argument("--prompts", type=int, default=16, help="of each kind (default 16)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default 128)")
    options = parser.parse_args(arguments)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from rich.console import Console
    from vllm import LLM, SamplingParams

    target = target_directory(print)
    tokenizer = read_tokenizer(target)
    with tempfile.TemporaryDirectory() as scratch:
        directory = beside_tokenizer(options.directory or home_of(options.drafter), target, Path(scratch))
        llm = LLM(
            model=str(target),
            dtype="bfloat16",
            enforce_eager=True,
            max_model_len=640,
            max_num_seqs=16,
            max_num_batched_tokens=2048,
            disable_log_stats=False,
            enable_prefix_caching=False,
            speculative_config={
                "method": _METHODS[options.drafter],
                "model": str(directory),
                "num_speculative_tokens": GAMMA,
            },
        )
        tallies = {}
        for kind in KINDS:
            before = _read(llm)
            asked = [
                {"prompt_token_ids": tokenizer.encode(text, add_special_tokens=False).ids[-PROMPT:]}
                for text in prompts(kind, options.prompts, SEED)
            ]
            wanted = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True)
            llm.generate(asked, wanted, use_tqdm=False)
            tallies[kind] = difference(_read(llm), before)
    Console().print(table(options.drafter, report(options.drafter, tallies)))
