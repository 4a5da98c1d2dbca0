from __future__ import annotations

import pytest
import torch

from demo_models.acceptance import Tally, add, count, measure_draft, measure_eagle
from demo_models.eagle import EagleHead
from demo_models.llama import Llama
from demo_models.served import difference
from demo_models.shards import Sequence


def test_counting_follows_the_walk_of_decoding() -> None:
    right = torch.tensor(
        [
            [0, 1, 1],  # after token 0, which decoding never starts from
            [1, 1, 0],  # after token 1: two accepted, then the target's own token 4
            [1, 1, 1],
            [1, 1, 1],
            [0, 1, 1],  # after token 4: the first is wrong, so the others do not count
            [1, 1, 1],  # after token 5: all three, so token 9 is next, with too few left
            [0, 0, 0],
            [0, 0, 0],
            [0, 0, 0],
            [1, 1, 1],
        ]
    ).bool()
    tally = count(right, start=1, end=10)
    assert tally == Tally(verifications=3, accepted=(2, 2, 1))
    assert tally.per_position == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert tally.mean_length == pytest.approx(1 + 5 / 3)


def test_tallies_add_up_by_position() -> None:
    assert add([Tally(2, (2, 1, 0)), Tally(3, (1, 1, 1))]) == Tally(5, (3, 2, 1))


def test_no_verification_is_no_acceptance() -> None:
    assert Tally(0, (0, 0, 0)).mean_length == 1


def test_the_target_as_its_own_drafter_is_always_right(target: Llama, corpus: list[Sequence]) -> None:
    greedy = [one for one in corpus if one.kind != "text"]
    tally = measure_draft(target, greedy)
    assert tally.mean_length == 4
    assert tally.verifications > 0


def test_a_head_that_passes_the_token_on_is_right_where_tokens_repeat(target: Llama) -> None:
    """With fc = [identity, 0] and silent layers its draft is the token whose embedding is closest to the newest one."""
    head = EagleHead(target.shape)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.fc.weight[:, :32] = torch.eye(32)
    matrix = target.embed_tokens.weight
    repeated = next(token for token in range(260) if int((matrix @ matrix[token]).argmax()) == token)
    tokens = torch.full((12,), repeated, dtype=torch.int32)
    tokens[6] = (repeated + 1) % 260
    nothing = torch.zeros(12, 32, dtype=torch.bfloat16)
    sequence = Sequence("", 1, tokens, nothing, torch.zeros(12, 8).int(), torch.zeros(12, 8).half())
    # from 1: 2 3 4 right, 5 is the target's; from 5: 6 is wrong; from 6: its own copy is wrong; from 7: 8 9 10 right
    assert measure_eagle(head, target, [sequence]) == Tally(4, (2, 2, 2))


def test_readings_of_counters_are_subtracted() -> None:
    before, after = {"drafts": [4], "accepted": [3, 2, 1]}, {"drafts": [10], "accepted": [8, 5, 1]}
    assert difference(after, before) == Tally(6, (5, 3, 0))
