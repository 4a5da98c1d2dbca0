"""Are the tokens those of target-only? Where not, is the difference within the noise of target-only itself?

A wider batch changes the last bits of the logits, and a near tie can flip a greedy token. So the noise is measured:
the same prefix asked alone and in wider batches gives gaps that differ, and the largest difference is the noise.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Top = dict[int, float]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token of a request that is not target-only's. prefix: all token ids before it."""

    kind: str
    concurrency: int
    mode: str
    request: int
    position: int
    expected: int
    got: int
    prefix: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A divergence with its gap: nats between target's likeliest token and the less likely of the two at issue."""

    divergence: Divergence
    gap: float
    explained: bool


@dataclass(frozen=True, slots=True)
class Noise:
    """Differences, in nats, of target-only's top-2 gap between batch widths. samples: how many were taken."""

    largest: float
    samples: int

    def __or__(self, other: "Noise") -> "Noise":
        return Noise(max(self.largest, other.largest), self.samples + other.samples)


QUIET = Noise(0.0, 0)


def first_difference(expected: Sequence[int], got: Sequence[int]) -> int | None:
    """Position of the first token that differs; a missing token differs; None where all are the same."""
    for position, (one, other) in enumerate(zip(expected, got, strict=False)):
        if one != other:
            return position
    return None if len(expected) == len(got) else min(len(expected), len(got))


def gap(top: Top, tokens: Iterable[int] = ()) -> float:
    """Nats between the likeliest token and the least likely of `tokens`, or, without them, the second likeliest.

    Infinite where `top` does not hold one of them: then it is no near tie.
    """
    ranked = sorted(top.values(), reverse=True)
    wanted = [top.get(token, -math.inf) for token in tokens]
    lowest = min(wanted) if wanted else (ranked[1] if len(ranked) > 1 else -math.inf)
    return ranked[0] - lowest if ranked else math.inf


def noise_between(one: Top, other: Top) -> Noise:
    """How much the gap between the two likeliest tokens of `one` differs in `other`, which saw the same prefix."""
    if len(one) < 2:
        return QUIET
    first, second = sorted(one, key=lambda token: one[token], reverse=True)[:2]
    if first not in other or second not in other:
        return QUIET
    return Noise(abs((one[first] - one[second]) - (other[first] - other[second])), 1)


def noise_along(tokens: Sequence[int], tops: Sequence[Top], others: Sequence[int], other_tops: Sequence[Top]) -> Noise:
    """The same over two answers to one prompt, token by token as long as their prefixes agree."""
    found = QUIET
    for token, top, other, other_top in zip(tokens, tops, others, other_tops, strict=False):
        found |= noise_between(top, other_top)
        if token != other:
            break
    return found


def judge(divergence: Divergence, top: Top, noise: Noise) -> Judged:
    """Explained where both tokens at issue are within the noise of the likeliest. top: of target-only, asked alone."""
    found = gap(top, (divergence.expected, divergence.got))
    return Judged(divergence, found, found <= noise.largest)
