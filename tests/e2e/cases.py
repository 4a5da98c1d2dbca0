"""Workloads that every engine runs: what is asked, and which completions must equal the target's own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines import TIE, Engine, engine

Prompt = list[int]


@dataclass(frozen=True)
class Case:
    """`params` makes one SamplingParams for each prompt; `compared` says which prompts' answers are determined.

    as_text: compare what the client reads. Where a stop string ends a request, the ids of tokens that came in the same
    step after it are the host's affair.
    """

    name: str
    lengths: tuple[int, ...]
    params: Callable[[int], Any]
    compared: Callable[[int], bool] = lambda row: True
    as_text: bool = False

    def prompts(self) -> list[Prompt]:
        draw = random.Random(self.name)
        return [[draw.randrange(4, 900) for _ in range(length)] for length in self.lengths]

    def run(self, engine: Engine, prompts: Sequence[Prompt]) -> list[list[Any] | None]:
        """Completions of each compared prompt, as token ids or text; None for the others."""
        params = [self.params(row) for row in range(len(prompts))]
        outputs: list[list[Any]] = (engine.texts if self.as_text else engine.generate)(list(prompts), params)
        return [output if self.compared(row) else None for row, output in enumerate(outputs)]


def _greedy(row: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=24 + 5 * row, ignore_eos=True)


def _mixed(row: int) -> Any:
    from vllm import SamplingParams

    match row % 4:
        case 1:
            return SamplingParams(temperature=0.8, top_p=0.9, max_tokens=30, ignore_eos=True, seed=row)
        case 3:
            return SamplingParams(temperature=0, repetition_penalty=1.3, max_tokens=30, ignore_eos=True)
        case _:
            return _greedy(row)


def _structured(row: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    if row % 2:
        return _greedy(row)
    grammar = StructuredOutputsParams(regex=r"(foo|bar|baz)( [a-z]{2,5}){3,6}\.")
    return SamplingParams(temperature=0, max_tokens=40, structured_outputs=grammar)


def _stopping(row: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=40, stop=[["Q"], ["z"], ["x", "j"]][row % 3], ignore_eos=True)


def _several(row: int) -> Any:
    """Three completions of a prompt; top_k=1 makes sampling deterministic."""
    from vllm import SamplingParams

    return SamplingParams(n=3, temperature=1.0, top_k=1, max_tokens=20, ignore_eos=True, seed=row)


CASES = {
    case.name: case
    for case in (
        Case("greedy", (5, 17, 3, 40, 9, 60), _greedy),
        Case("chunked-prefill", (200, 11, 310, 7, 150), _greedy),
        Case("many", (4, 30, 12, 7, 21, 3, 16, 9, 33, 5, 14, 8), _greedy),
        Case("mixed-sampling", (9, 14, 6, 22, 5, 17, 12, 8), _mixed, lambda row: row % 4 != 1),
        Case("structured", (9, 14, 6, 22), _structured),
        Case("stop-strings", (9, 14, 6, 22, 31), _stopping, as_text=True),
        Case("several-completions", (9, 21), _several),
    )
}
# Requests that outgrow a block of 128 tokens, for hosts whose blocks are that large.
GROWING = Case("growing", (118, 120, 116, 122, 119, 121), _greedy)


def answers(models: Path, target: str, **options: Any) -> dict[str, dict[str, Any]]:
    """The target's own answers to every case, computed once a run by an engine with these options."""
    import filelock

    file = models / f"{target}.answers.json"
    with filelock.FileLock(f"{file}.lock"):
        if not file.exists():
            with engine(models / target, **options) as plain:
                assert "Adaptive" not in type(plain.scheduler).__name__
                file.write_text(json.dumps(reference(plain)))
        found: dict[str, dict[str, Any]] = json.loads(file.read_text())
        return found


def reference(plain: Engine) -> dict[str, dict[str, Any]]:
    """Prompts and the target's own completions for every case.

    A prompt along whose greedy answer the target nearly ties is replaced: there, rounding may decide the token.
    """
    from vllm import SamplingParams

    found = {}
    for case in (*CASES.values(), GROWING):
        prompts = case.prompts()
        draw = random.Random(case.name + "-again")
        for _ in range(20):
            probe = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, logprobs=2)
            probed = plain.llm.generate([{"prompt_token_ids": p} for p in prompts], probe, use_tqdm=False)
            tied = [row for row, answer in enumerate(probed) if smallest_gap(answer) < TIE]
            if not tied:
                break
            for row in tied:
                prompts[row] = [draw.randrange(4, 900) for _ in prompts[row]]
        else:
            raise AssertionError(f"no prompts without near ties for {case.name}")
        found[case.name] = {"prompts": prompts, "tokens": case.run(plain, prompts)}
    return found


def smallest_gap(answer: Any) -> float:
    gaps = []
    for step in answer.outputs[0].logprobs:
        best, second = sorted((entry.logprob for entry in step.values()), reverse=True)[:2]
        gaps.append(best - second)
    return min(gaps)
