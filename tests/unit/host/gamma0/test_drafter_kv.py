"""The account of a drafter's KV, against a drafter that remembers each slot's token in a plain dictionary."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch

from vllm_hust_vspec.host.gamma0.drafter_kv import Batch, DrafterKV, Replay
from vllm_hust_vspec.host.gamma0.ledger import Ledger

SIZE = 4


@dataclass
class Request:
    blocks: list[int]
    tokens: list[int]
    computed: int = 0

    def slot(self, position: int) -> int:
        return self.blocks[position // SIZE] * SIZE + position % SIZE


@dataclass
class Drafter:
    """What a drafter's cache holds: slot -> token."""

    kv: DrafterKV
    cache: dict[int, int] = field(default_factory=dict)
    replays: list[Replay] = field(default_factory=list)

    def step(self, requests: dict[str, Request], computes: dict[str, int], *, drafts: bool) -> None:
        """The target computes the next tokens of some requests."""
        tokens, slots, starts = [], [], []
        for name, count in computes.items():
            request = requests[name]
            starts.append(request.computed)
            for position in range(request.computed, request.computed + count):
                tokens.append(request.tokens[position])
                slots.append(request.slot(position))
            request.computed += count
        longest = max(len(requests[name].blocks) for name in computes)
        table = [requests[name].blocks + [0] * (longest - len(requests[name].blocks)) for name in computes]
        if not drafts:
            self.kv.rest(torch.tensor(tokens), torch.tensor(slots))
            return
        batch = Batch(
            list(computes),
            torch.tensor(tokens),
            torch.tensor(slots),
            torch.tensor(starts),
            torch.tensor(table, dtype=torch.int32),
            max(starts),
        )
        self.kv.resume(batch, lambda replay: self._run(replay, [requests[name] for name in computes]))
        self.cache |= zip(slots, tokens, strict=True)
        for name in computes:
            request = requests[name]
            have = [self.cache.get(request.slot(position)) for position in range(request.computed)]
            assert have == request.tokens[: request.computed]

    def _run(self, replay: Replay, rows: list[Request]) -> None:
        self.replays.append(replay)
        assert replay.positions.tolist() == [p for span in replay.spans for p in range(span.first, span.end)]
        for span, after in zip(replay.spans, replay.following.tolist(), strict=True):
            request = rows[span.row]
            assert after == request.tokens[span.end]
            for position in range(span.first):
                assert self.cache.get(request.slot(position)) == request.tokens[position], "run out of order"
        self.cache |= zip(replay.slots.tolist(), replay.tokens.tolist(), strict=True)


def drafter(room: int = 64) -> Drafter:
    return Drafter(DrafterKV(slots=64 * SIZE, block_size=SIZE, room=room, device=torch.device("cpu")))


def test_what_was_skipped_is_replayed_once() -> None:
    host, one = drafter(), {"one": Request([3, 1, 2], list(range(100, 112)))}
    host.step(one, {"one": 3}, drafts=True)
    host.step(one, {"one": 2}, drafts=False)
    host.step(one, {"one": 1}, drafts=True)
    assert [replay.tokens.tolist() for replay in host.replays] == [[103, 104]]
    assert host.replays[0].slots.tolist() == [3 * SIZE + 3, SIZE]
    host.step(one, {"one": 1}, drafts=True)
    assert len(host.replays) == 1
    assert (host.kv.replayed_tokens, host.kv.replay_passes) == (2, 1)


def test_a_shared_prefix_owes_whoever_hits_it() -> None:
    host = drafter()
    both = {
        "first": Request([5, 6], [7, 8, 9, 10, 11, 12]),
        "second": Request([5, 9], [7, 8, 9, 10, 21, 22, 23], computed=4),
    }
    host.step(both, {"first": 5}, drafts=False)
    host.step(both, {"second": 1}, drafts=True)
    assert host.replays[0].tokens.tolist() == [7, 8, 9, 10]
    host.step(both, {"first": 1, "second": 1}, drafts=True)
    assert host.replays[1].tokens.tolist() == [11]


def test_blocks_that_change_hands_owe_nothing() -> None:
    host, some = drafter(), {"old": Request([4], [1, 2, 3, 4]), "new": Request([4], [5, 6, 7])}
    host.step(some, {"old": 3}, drafts=False)
    host.step(some, {"new": 2}, drafts=True)
    assert host.replays == []


def test_padding_marks_nobody() -> None:
    ledger = Ledger(8, torch.device("cpu"))
    ledger.note(torch.tensor([-1, 3]), torch.tensor([9, 9]), owed=True)
    table, ends = torch.tensor([[0, 1]]), torch.tensor([8])
    assert ledger.first_owed(table, 4, ends, 8) == [3]
    assert ledger.first_owed(table, 4, torch.tensor([3]), 8) == [3]
    ledger.clear(torch.tensor([3]))
    assert ledger.first_owed(table, 4, ends, 8) == [8]


@pytest.mark.parametrize("seed", range(12))
def test_any_course_of_rests_leaves_the_drafter_whole(seed: int) -> None:
    draw = random.Random(seed)
    host, free = drafter(room=draw.choice([2, 5, 9, 64])), list(range(1, 64))
    draw.shuffle(free)
    requests: dict[str, Request] = {}
    for step in range(80):
        if len(requests) < 5 and draw.random() < 0.3:
            shared = draw.choice(list(requests.values())) if requests and draw.random() < 0.5 else None
            length = draw.randint(9, 32)
            hit = shared.computed // SIZE if shared and shared.computed // SIZE * SIZE < length else 0
            blocks = (shared.blocks[:hit] if shared else []) + [free.pop() for _ in range(-(-length // SIZE) - hit)]
            tokens = (shared.tokens[: hit * SIZE] if shared else []) + [
                draw.randint(1, 999) for _ in range(length - hit * SIZE)
            ]
            requests[str(step)] = Request(blocks, tokens, computed=hit * SIZE)
        computes = {}
        for name, request in requests.items():
            left = len(request.tokens) - 1 - request.computed
            if left > 0 and draw.random() < 0.8:
                computes[name] = draw.randint(1, min(left, 6))
        if computes:
            host.step(requests, computes, drafts=draw.random() < 0.5)
        for name in [name for name, request in requests.items() if request.computed >= len(request.tokens) - 1]:
            gone = requests.pop(name)
            kept = {block for request in requests.values() for block in request.blocks}
            free.extend(block for block in gone.blocks if block not in kept)
    assert host.replays
