"""What verification did with each draft of a run, held against the target's own logits at the same places."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from engines import TIE, Engine

from vllm_hust_vspec.host.accept.rules import AmongBest, Rule, WithinMargin

SPECIALS = {0, 1, 2, 3}  # of the tiny models' tokenizer


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
        unfinished = runner.discard_request_mask.np[: len(rows)].tolist()  # prompts of which a part is yet to come
        for row, (tokens, count) in enumerate(zip(rows, counts, strict=True)):
            offered, drafts = drafts[:count], drafts[count:]
            if unfinished[row]:
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

        self._network = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to("cpu").eval()

    def logits(self, story: Story) -> torch.Tensor:
        """Its logits at every generated token. Returns float32 [len(story.tokens), V]."""
        with torch.inference_mode():
            logits = self._network(torch.tensor([story.prompt + story.tokens])).logits[0]
        return logits[len(story.prompt) - 1 : -1]


@dataclass(frozen=True, slots=True)
class Checked:
    """faults: what the rule does not explain. looked_at: drafts. beyond: accepted ones that are not the best token."""

    faults: list[str]
    looked_at: int
    beyond: int


def check(rule: Rule, stories: Sequence[Story], target: Target) -> Checked:
    """Hold every verdict, and every token of the target's own, against the rule."""
    faults, looked_at, beyond = [], 0, 0
    for story in stories:
        logits = target.logits(story)
        drafted = {verdict.generated for verdict in story.verdicts if verdict.accepted}
        for verdict in story.verdicts:
            row = logits[verdict.generated]
            looked_at += 1
            beyond += verdict.accepted and verdict.token != int(row.argmax())
            if verdict.accepted and not _acceptable(rule, verdict, row, TIE):
                faults.append(f"accepted against the rule: {verdict}")
            if not verdict.accepted and _acceptable(rule, verdict, row, -TIE):
                faults.append(f"refused against the rule: {verdict}")
        for place, token in enumerate(story.tokens):
            if place not in drafted and float(logits[place].max() - logits[place][token]) > TIE:
                faults.append(f"token {token} at {place} is neither an accepted draft nor the target's best")
    return Checked(faults, looked_at, beyond)


def _acceptable(rule: Rule, verdict: Verdict, logits: torch.Tensor, slack: float) -> bool:
    """Whether the rule accepts a draft where the target's logits are these, fp32 [V].

    slack: how far rounding may have moved a logit; positive accepts what is nearly acceptable, negative does not.
    """
    best, own = float(logits.max()), float(logits[verdict.token])
    if best - own <= slack or (slack < 0 and verdict.token == int(logits.argmax())):
        return True
    match rule:
        case AmongBest(k, after):
            return verdict.generated >= after and int((logits > own + slack).sum()) < k
        case WithinMargin(margin, position, after, named):
            free = verdict.token not in SPECIALS | set(named)
            return free and verdict.generated >= after and verdict.position >= position and best - own <= margin + slack
        case _:
            return False
