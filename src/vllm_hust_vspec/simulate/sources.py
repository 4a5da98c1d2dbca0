"""How requests come in, and in which phase the job is."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.simulate.texts import Texts
from vllm_hust_vspec.simulate.workload import Workload


class Source(Protocol):
    """Requests by number, in order. running counts those that prefill or decode."""

    done: bool
    phase: int

    def wait(self, clock: float, running: int) -> tuple[float, bool]:
        """The clock when there is something to do, and whether the engine was idle until then."""
        ...

    def most(self) -> int | None:
        """Requests that go on; those beyond, the youngest, are aborted. None = all."""
        ...

    def join(self, clock: float, running: int) -> range:
        """Requests that are admitted now."""
        ...

    def served(self, tokens: int, running: int) -> None:
        """A step ended: tokens were kept, `running` requests go on."""
        ...

    def arrival(self, request: int) -> float:
        """When the request came in, seconds; 0 where it makes no sense."""
        ...


class Closed:
    """closed and drain: phases by work done."""

    def __init__(self, workload: Workload, texts: Texts) -> None:
        self.done, self.phase = False, 0
        self._drain = workload.kind == "drain"
        self._concurrency = [phase.concurrency for phase in workload.phases]
        work = np.array([phase.tokens for phase in workload.phases])
        total = float(texts.lengths.sum()) if self._drain else float(work.sum())
        self._ends = (np.cumsum(work) * (total / float(work.sum()))).tolist()
        self._requests, self._next, self._tokens = len(texts.lengths), 0, 0

    def wait(self, clock: float, running: int) -> tuple[float, bool]:
        return clock, False

    def most(self) -> int | None:
        return None if self._drain else self._concurrency[self.phase]

    def join(self, clock: float, running: int) -> range:
        first = self._next
        self._next = min(max(first, first + self._concurrency[self.phase] - running), self._requests)
        return range(first, self._next)

    def served(self, tokens: int, running: int) -> None:
        self._tokens += tokens
        while self.phase < len(self._ends) - 1 and self._tokens >= self._ends[self.phase]:
            self.phase += 1
        if self._drain:
            self.done = self._next == self._requests and not running
        else:
            self.done = self._tokens >= self._ends[-1]

    def arrival(self, request: int) -> float:
        return 0.0


class Waves:
    """Each phase at once, and the next when all of it is served, as a benchmark's client does."""

    def __init__(self, workload: Workload) -> None:
        self.done, self.phase = False, 0
        self._sizes = [phase.concurrency for phase in workload.phases]
        self._next, self._begun = 0, False

    def wait(self, clock: float, running: int) -> tuple[float, bool]:
        return clock, not running

    def most(self) -> int | None:
        return None

    def join(self, clock: float, running: int) -> range:
        if self._begun:
            return range(0)
        self._begun, first = True, self._next
        self._next += self._sizes[self.phase]
        return range(first, self._next)

    def served(self, tokens: int, running: int) -> None:
        if not running:
            self.done = self.phase == len(self._sizes) - 1
            self.phase += not self.done
            self._begun = False

    def arrival(self, request: int) -> float:
        return 0.0


class Open:
    """Requests at times of their own."""

    def __init__(self, workload: Workload, arrivals: NDArray[np.float64]) -> None:
        self.done, self.phase = False, 0
        self._times: list[float] = arrivals.tolist()
        self._ends = np.cumsum([phase.concurrency for phase in workload.phases]).tolist()
        self._most, self._next = workload.max_requests, 0

    def wait(self, clock: float, running: int) -> tuple[float, bool]:
        if running or self._times[self._next] <= clock:
            return clock, False
        return self._times[self._next], True

    def most(self) -> int | None:
        return None

    def join(self, clock: float, running: int) -> range:
        first = self._next
        while self._next < min(len(self._times), first + self._most - running) and self._times[self._next] <= clock:
            self._next += 1
        while self._next > self._ends[self.phase] and self.phase < len(self._ends) - 1:
            self.phase += 1
        return range(first, self._next)

    def served(self, tokens: int, running: int) -> None:
        self.done = self._next == len(self._times) and not running

    def arrival(self, request: int) -> float:
        return self._times[request]


def source_of(workload: Workload, texts: Texts, seed: int) -> Source:
    """The source of a workload's kind."""
    if workload.kind == "waves":
        return Waves(workload)
    if workload.kind == "open":
        return Open(workload, workload.arrivals(seed))
    return Closed(workload, texts)
