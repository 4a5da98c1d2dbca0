"""What verification did with each draft of a run, and the target's own logits at the same places."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from engines import Engine


@dataclass(frozen=True, slots=True)
class Verdict:
    """A draft that was looked at: `generated` tokens of its request and `position` drafts of its step precede it."""

    token: int
    accepted: bool
    generated: int
    position: int


@dataclass
class Story:
    """One request: what it generated, and the drafts that it was offered and that were looked at."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


@contextlib.contextmanager
def recorded(started: Engine) -> Iterator[dict[str, Story]]:
    """Every verification of the engine while it is open, by request."""
    runner, stories = started.runner, dict[str, Story]()
    sample = runner._sample

    def record(logits: Any, metadata: Any) -> Any:
        output = sample(logits, metadata)
        batch = runner.input_batch
        rows = output.sampled_token_ids.cpu().tolist()
        drafts = metadata.draft_token_ids.cpu().tolist() if metadata is not None else []
        counts = metadata.num_draft_tokens if metadata is not None else [0] * len(rows)
        unfinished = set(runner.discard_request_indices.np[: runner.num_discarded_requests].tolist())
        for row, (tokens, count) in enumerate(zip(rows, counts, strict=True)):
            offered, drafts = drafts[:count], drafts[count:]
            if row in unfinished:
                continue
            length = batch.num_prompt_tokens[row]
            story = stories.setdefault(batch.req_ids[row], Story(batch.token_ids_cpu[row, :length].tolist()))
            _tell(story, offered, [token for token in tokens if token >= 0])
        return output

    runner._sample = record
    try:
        yield stories
    finally:
        del runner._sample


def _tell(story: Story, offered: Sequence[int], committed: Sequence[int]) -> None:
    """Add a step. All that was committed but the last token are accepted drafts; the one behind them was refused."""
    assert len(committed) <= len(offered) + 1, "more tokens than drafts allow"
    for position, (draft, token) in enumerate(zip(offered, committed, strict=False)):
        accepted = position < len(committed) - 1
        assert not accepted or draft == token, "a token that was neither drafted nor the last"
        story.verdicts.append(Verdict(draft, accepted, len(story.tokens) + position, position))
    story.tokens.extend(committed)


class Target:
    """The target in Hugging Face's implementation, on the CPU."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._network = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def logits(self, story: Story) -> torch.Tensor:
        """Its logits at every generated token. Returns float32 [len(story.tokens), V]."""
        with torch.inference_mode():
            logits = self._network(torch.tensor([story.prompt + story.tokens])).logits[0]
        return logits[len(story.prompt) - 1 : -1]
