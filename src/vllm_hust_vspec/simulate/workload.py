"""What a server is asked to do: phases of load and of text, and how requests come in."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.simulate.texts import Nature, Texts

Kind = Literal["closed", "drain", "waves", "open"]
NOMINAL = 2.0  # tokens per request and step that a phase's length is reckoned with


@dataclass(frozen=True, slots=True)
class Phase:
    """concurrency: requests at once. steps: length of the phase at NOMINAL tokens per request and step; what ends it is
    the work done, so every policy meets the same phases. output: tokens of each answer, waves only. rate: requests/s
    that come in, open loop only. label: what belongs together in a report."""

    concurrency: int
    nature: Nature
    steps: float = 0.0
    output: int = 0
    rate: float = 0.0
    label: str = ""

    @property
    def tokens(self) -> float:
        return self.steps * self.concurrency * NOMINAL


@dataclass(frozen=True, slots=True)
class Workload:
    """How requests come in and what they are.

    closed: as many requests at once as the phase says, until the phases' tokens are served. When a phase begins, the
        nature of all texts changes, and requests that are too many are aborted: so a phase is the same work, at the
        same load, for every policy.
    drain: as closed, but the requests are given and the job ends when the last is served.
    waves: each phase is one wave: `concurrency` requests at once, the next wave when all are served.
    open: requests come at times of their own; phases follow each other by requests, `concurrency` of them each, and
        max_requests run at once.
    prompt, output: ranges of prompt tokens and of tokens to serve.
    """

    name: str
    phases: tuple[Phase, ...]
    kind: Kind = "closed"
    prompt: tuple[int, int] = (48, 192)
    output: tuple[int, int] = (80, 240)
    requests: int = 0
    max_requests: int = 256

    @property
    def tokens(self) -> float:
        return sum(phase.tokens for phase in self.phases)

    def texts(self, seed: int) -> Texts:
        """The requests of this job."""
        key = (seed, *self.name.encode())
        rng = np.random.default_rng(key)
        if self.kind == "waves":
            lengths = [phase.output for phase in self.phases for _ in range(phase.concurrency)]
        else:
            lengths = rng.integers(self.output[0], self.output[1] + 1, self._enough()).tolist()
        prompts = rng.integers(self.prompt[0], self.prompt[1] + 1, len(lengths)).tolist()
        return Texts(lengths, prompts, key)

    def arrivals(self, seed: int) -> NDArray[np.float64]:
        """Seconds at which each request comes in, open loop."""
        rng = np.random.default_rng((seed, 4, *self.name.encode()))
        gaps = [rng.exponential(1.0 / phase.rate, phase.concurrency) for phase in self.phases]
        return np.cumsum(np.concatenate(gaps))

    def _enough(self) -> int:
        if self.kind == "drain":
            return self.requests
        if self.kind == "open":
            return sum(phase.concurrency for phase in self.phases)
        most = max(phase.concurrency for phase in self.phases)
        return int(self.tokens / self.output[0]) + 2 * most + 1
