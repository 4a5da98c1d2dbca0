"""A drafter that rests at gamma 0, and the replay that makes its KV whole when speculation resumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vllm_hust_vspec.host.gamma0.ledger import Ledger, slots_of
from vllm_hust_vspec.host.gamma0.spans import Span, passes


@dataclass(frozen=True, slots=True)
class Batch:
    """What the target computed in a step.

    requests: ids, a row each; tokens, slots [tokens]: of all rows, one after the other; starts [rows]: position of each
    row's first token; blocks [rows, n]: the drafter's block table; longest: at least the greatest start.
    """

    requests: Sequence[str]
    tokens: torch.Tensor
    slots: torch.Tensor
    starts: torch.Tensor
    blocks: torch.Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class Replay:
    """One drafter pass that fills in KV: spans of some rows of the batch, short ones first.

    tokens, positions, slots [tokens]: of the spans, one after the other; following [spans]: the token after each.
    """

    spans: Sequence[Span]
    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    following: torch.Tensor

    @property
    def rows(self) -> list[int]:
        return [span.row for span in self.spans]

    @property
    def lengths(self) -> list[int]:
        return [span.end - span.first for span in self.spans]

    @property
    def ends(self) -> list[int]:
        return [span.end for span in self.spans]


class DrafterKV:
    """Keeps account of one drafter's KV cache.

    slots: of the cache; room: tokens that a drafter pass holds.
    """

    def __init__(self, *, slots: int, block_size: int, room: int, device: torch.device) -> None:
        self._ledger = Ledger(slots, device)
        self._block_size = block_size
        self._room = room
        self._rested = False
        self._whole: set[str] = set()
        self.resting = False
        self.replayed_tokens = 0
        self.replay_passes = 0

    def rest(self, tokens: torch.Tensor, slots: torch.Tensor) -> None:
        """The drafter skips a step whose target computed tokens [n] at slots [n]."""
        self._ledger.note(slots, tokens, owed=True)
        self._rested = True
        self._whole.clear()

    def resume(self, batch: Batch, run: Callable[[Replay], None]) -> None:
        """The drafter is about to run on a step's batch: first fill in what it lacks of the batch's requests.

        Waits for the device once where a request may lack something: when it is new to the batch, or a step was
        skipped since; steps after that cost a scatter.
        """
        # Noted first: the token after a span that ends where the step begins is the step's own.
        self._ledger.note(batch.slots, batch.tokens, owed=False)
        if not self._rested:
            return
        doubtful = [row for row, request in enumerate(batch.requests) if request not in self._whole]
        if doubtful:
            self._replay(batch, doubtful, run)
        # Who leaves the batch may come back with blocks of somebody else's.
        self._whole = set(batch.requests)

    def _replay(self, batch: Batch, rows: list[int], run: Callable[[Replay], None]) -> None:
        chosen = torch.tensor(rows, device=batch.blocks.device)
        starts = batch.starts[chosen]
        first = self._ledger.first_owed(batch.blocks[chosen], self._block_size, starts, batch.longest)
        owed = [Span(*span) for span in zip(rows, first, starts.tolist(), strict=True)]
        for spans in passes(owed, self._room):
            replay = self._prepared(batch.blocks, spans)
            run(replay)
            self._ledger.clear(replay.slots)
            self.replay_passes += 1
            self.replayed_tokens += sum(replay.lengths)

    def _prepared(self, blocks: torch.Tensor, spans: list[Span]) -> Replay:
        positions = torch.cat([torch.arange(span.first, span.end, device=blocks.device) for span in spans])
        rows, firsts, ends = torch.tensor(spans, device=blocks.device).unbind(1)
        slots = slots_of(blocks, self._block_size, rows.repeat_interleave(ends - firsts), positions)
        following = self._ledger.tokens(slots_of(blocks, self._block_size, rows, ends))
        return Replay(spans, self._ledger.tokens(slots), positions, slots, following)
