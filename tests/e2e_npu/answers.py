"""What the models answer on a CPU, in Hugging Face's implementation: the truth that every host is held against."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIE = 1e-3  # logit distance under which two tokens count as a near tie; fp32 noise between widths is about 1e-5


@dataclass(frozen=True, slots=True)
class Answers:
    """prompts: token ids; tokens: each prompt's greedy continuation, `max_tokens` long."""

    prompts: list[list[int]]
    tokens: list[list[int]]


class References:
    """Greedy answers of the models below `root`, computed once a run by whichever worker comes first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loaded: dict[str, Any] = {}

    def __call__(self, model: str, lengths: Sequence[int], max_tokens: int = 24, seed: int = 0) -> Answers:
        """Answers to random prompts of the given lengths, in which the model nowhere nearly ties."""
        import filelock

        name = f"{model}-{'-'.join(map(str, lengths))}-{max_tokens}-{seed}.answers.json"
        file = self._root / name
        with filelock.FileLock(f"{file}.lock"):
            if not file.exists():
                file.write_text(json.dumps(asdict(self._compute(model, lengths, max_tokens, seed))))
            return Answers(**json.loads(file.read_text()))

    def tokens(self, model: str, prompt: Sequence[int], max_tokens: int) -> list[int]:
        """The greedy continuation of one prompt, near ties or not."""
        return self._continue(model, prompt, max_tokens)[0]

    def _compute(self, model: str, lengths: Sequence[int], max_tokens: int, seed: int) -> Answers:
        draw = random.Random(f"{lengths}-{seed}")
        prompts, tokens = [], []
        for length in lengths:
            for _ in range(50):
                prompt = [draw.randrange(4, 900) for _ in range(length)]
                answer, smallest_gap = self._continue(model, prompt, max_tokens)
                if smallest_gap > TIE:
                    break
            else:
                raise AssertionError(f"no prompt of {length} tokens without near ties for {model}")
            prompts.append(prompt)
            tokens.append(answer)
        return Answers(prompts, tokens)

    def _continue(self, model: str, prompt: Sequence[int], max_tokens: int) -> tuple[list[int], float]:
        """(greedy tokens, smallest distance between the two best logits on the way)."""
        import torch

        network, tokens, gap, cache = self._model(model), [], float("inf"), None
        fresh = torch.tensor([list(prompt)])
        with torch.inference_mode():
            for _ in range(max_tokens):
                output = network(fresh, past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                best = output.logits[0, -1].topk(2)
                gap = min(gap, float(best.values[0] - best.values[1]))
                tokens.append(int(best.indices[0]))
                fresh = best.indices[:1][None]
        return tokens, gap

    def _model(self, name: str) -> Any:
        if name not in self._loaded:
            import torch
            from transformers import AutoModelForCausalLM

            network = AutoModelForCausalLM.from_pretrained(self._root / name, dtype=torch.float32)
            self._loaded[name] = network.to("cpu").eval()
        return self._loaded[name]
