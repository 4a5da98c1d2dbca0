"""What the drafter's KV cache lacks, slot by slot.

A slot belongs to a position of whichever requests share its block, so marks by slot follow a prefix into every request
that hits it, and need no word of which request wrote it or whether that one still lives.
"""

from __future__ import annotations

import torch


class Ledger:
    """Per KV slot: the token that the target last computed there, and whether the drafter has yet to.

    slots: how many the cache has. Kept on the cache's device: int32 and bool, 5 bytes a slot. Nothing here waits for
    the device but `first_owed`.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        # One more than there are: padding names slot -1, which is then the last and belongs to nobody.
        self._tokens = torch.zeros(slots + 1, dtype=torch.int32, device=device)
        self._owed = torch.zeros(slots + 1, dtype=torch.bool, device=device)

    def note(self, slots: torch.Tensor, tokens: torch.Tensor, *, owed: bool) -> None:
        """The target computed `tokens` [n] at `slots` [n]; owed: the drafter did not."""
        self._tokens[slots] = tokens.to(torch.int32)
        self._owed[slots] = owed

    def clear(self, slots: torch.Tensor) -> None:
        """The drafter computed `slots` [n]."""
        self._owed[slots] = False

    def tokens(self, slots: torch.Tensor) -> torch.Tensor:
        """int32 [n]"""
        return self._tokens[slots]

    def first_owed(self, blocks: torch.Tensor, block_size: int, ends: torch.Tensor, longest: int) -> list[int]:
        """First position that each request's drafter lacks; its end where it lacks none. Waits for the device.

        blocks: int [requests, blocks a request]; ends: int [requests], positions before them are looked at, of which
        there are at most `longest`.
        """
        positions = torch.arange(longest, device=blocks.device)
        rows = torch.arange(len(blocks), device=blocks.device)[:, None]
        owed = self._owed[slots_of(blocks, block_size, rows, positions)] & (positions < ends[:, None])
        first = torch.where(owed, positions, longest).amin(dim=1) if longest else ends
        found: list[int] = torch.minimum(first, ends).tolist()
        return found


def slots_of(blocks: torch.Tensor, block_size: int, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """int64 [n]: the slots of positions [n] of the requests in rows [n] of a block table; both broadcast."""
    return blocks[rows, positions // block_size].long() * block_size + positions % block_size
