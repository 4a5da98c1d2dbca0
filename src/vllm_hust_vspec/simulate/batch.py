"""The requests under way: those that wait for prefill and those that decode, as arrays."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vllm_hust_vspec.simulate.texts import Ints, Texts


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is verified in a step. asked: drafts per request, 0 where there are none. proposed, accepted: by request,
    None = as many as asked, or no drafts. count: drafts in all."""

    asked: int = 0
    proposed: Ints | None = None
    accepted: Ints | None = None
    count: int = 0

    def told(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(proposed, accepted) as an outcome carries them."""
        if self.accepted is None:
            return (), ()
        accepted = tuple(self.accepted.tolist())
        proposed = (self.asked,) * len(accepted) if self.proposed is None else tuple(self.proposed.tolist())
        return proposed, accepted


class Batch:
    """who: requests that decode, in the order in which they began. kv: their tokens in the KV cache."""

    def __init__(self, texts: Texts, room: int) -> None:
        self.who: list[int] = []
        self.kv = 0
        self._texts = texts
        self._waiting: deque[list[int]] = deque()
        self._at, self._left, self._context = (np.zeros(room, dtype=np.int64) for _ in range(3))

    @property
    def running(self) -> int:
        """Requests that prefill or decode."""
        return len(self.who) + len(self._waiting)

    def names(self) -> tuple[str, ...]:
        return tuple([self._texts.names[request] for request in self.who])

    def admit(self, requests: Iterable[int]) -> None:
        self._waiting.extend([request, int(self._texts.prompts[request])] for request in requests)

    def abort(self, most: int) -> list[tuple[int, int]]:
        """Drop all but the `most` oldest requests: (request, tokens served) of each that had begun to decode."""
        while self._waiting and self.running > most:
            self._waiting.pop()
        n = len(self.who)
        positions = self._at[most:n].tolist()
        self.kv -= int(self._context[most:n].sum())
        gone, self.who = self.who[most:], self.who[:most]
        return [(request, at - request * self._texts.width) for request, at in zip(gone, positions, strict=True)]

    def drafts(self, asked: int, accepted: Ints, offered: Ints | None) -> Drafts:
        """The drafts that come of asking for so many each. accepted, offered: as Texts gives them."""
        n = len(self.who)
        if not asked or not n:
            return Drafts()
        at = self._at[:n]
        if offered is None:
            return Drafts(asked, None, np.minimum(accepted[at], asked), n * asked)
        proposed = offered[at] * asked
        return Drafts(asked, proposed, np.minimum(accepted[at], proposed), int(proposed.sum()))

    def prefill(self, budget: int) -> tuple[list[int], int, int]:
        """Schedule prompt tokens in order of arrival: (requests that end their prompt, prompt tokens, tokens of those
        requests that are in the KV cache already)."""
        finished, prompts, held = [], 0, 0
        while self._waiting and prompts < budget:
            request, rest = self._waiting[0]
            chunk = min(rest, budget - prompts)
            prompts += chunk
            if chunk < rest:
                self._waiting[0][1] -= chunk
                break
            finished.append(request)
            held += int(self._texts.prompts[request]) - rest
            self._waiting.popleft()
        return finished, prompts, held

    def keep(self, accepted: Ints | None) -> int:
        """Every request that decodes keeps what was accepted and one token more, to its end at most: tokens kept."""
        n = len(self.who)
        kept = np.minimum(self._left[:n], 1 if accepted is None else accepted + 1)
        self._at[:n] += kept
        self._left[:n] -= kept
        self._context[:n] += kept
        committed = int(kept.sum())
        self.kv += committed
        return committed

    def start(self, requests: list[int]) -> int:
        """Requests whose prompt is done sample their first token: tokens kept."""
        texts = self._texts
        for request in requests:
            n = len(self.who)
            self._at[n], self._left[n] = request * texts.width + 1, texts.lengths[request] - 1
            self._context[n] = texts.prompts[request] + 1
            self.kv += int(self._context[n])
            self.who.append(request)
        return len(requests)

    def leave(self) -> list[tuple[int, int]]:
        """Requests that are served whole go: (request, tokens served)."""
        n = len(self.who)
        left = self._left[:n]
        if not n or left.all():
            return []
        stay = left > 0
        gone = [(self.who[at], int(self._texts.lengths[self.who[at]])) for at in np.flatnonzero(~stay).tolist()]
        self.kv -= int(self._context[:n][~stay].sum())
        self.who = [self.who[at] for at in np.flatnonzero(stay).tolist()]
        for array in (self._at, self._left, self._context):
            array[: len(self.who)] = array[:n][stay]
        return gone
