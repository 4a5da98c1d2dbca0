"""Drives the servers: every cell in every mode, then the noise of target-only."""

from collections.abc import Sequence

from vllm_hust_vspec.demo.api import Api, Batch, Completion, Prompt
from vllm_hust_vspec.demo.identity import (
    QUIET,
    Divergence,
    Noise,
    Top,
    first_difference,
    judge,
    noise_along,
    noise_between,
)
from vllm_hust_vspec.demo.plan import (
    ADAPTIVE,
    CELLS,
    CONCURRENCY,
    MAX_GAMMA,
    TARGET,
    Cell,
    Clock,
    Scale,
    gamma_of,
    load,
    order,
)
from vllm_hust_vspec.demo.progress import Show
from vllm_hust_vspec.demo.prompts import KINDS, prompts
from vllm_hust_vspec.demo.results import CellResult, Run, Speculation
from vllm_hust_vspec.demo.steering import Steering

NOISE_STEPS = 10  # of the progress bar
_WARM_TOKENS = 16
_LOGPROBS = 8
_ALONE = 2  # prompts of each kind whose noise is measured


def steps(scale: Scale) -> int:
    """Length of the progress bar: servers, runs, noise."""
    return 2 + len(CELLS) * len(order(scale.rounds)) + NOISE_STEPS


class Measurement:
    """One demo over two running servers: target-only, and speculative with its steering socket."""

    def __init__(
        self, target: Api, speculative: Api, steering: Steering, scale: Scale, clock: Clock, show: Show
    ) -> None:
        self._target = target
        self._speculative = speculative
        self._steering = steering
        self._scale = scale
        self._clock = clock
        self._show = show
        self._found: list[tuple[CellResult, Divergence]] = []
        self._prefixes: dict[tuple[int, ...], None] = {}

    async def cells(self) -> list[CellResult]:
        """All cells. The controller starts cold in the first and keeps what it learns from then on."""
        self._steering.reset()
        return [await self._cell(cell) for cell in CELLS]

    async def noise(self) -> Noise:
        """Measure target-only's noise and judge every divergence by it."""
        self._show.doing("noise of target-only")
        alone, found = await self._noise_of_prefixes()
        for number, kind in enumerate(KINDS):
            if number == 0 or not self._clock.late():
                found |= await self._noise_of_answers(kind)
            self._show.advance(NOISE_STEPS // len(KINDS) // 2 or 1)
        for result, divergence in self._found:
            result.judged.append(judge(divergence, alone[divergence.prefix], found))
        self._show.advance(NOISE_STEPS // 2)
        return found

    async def _cell(self, cell: Cell) -> CellResult:
        runs = order(self._scale.rounds)
        self._show.doing(f"{cell.kind} x{cell.concurrency}: warm-up")
        speed = await self._warm_up(cell)
        result = CellResult(cell, load(cell, speed, self._clock.seconds_per_run()))
        asked = prompts(cell.kind, result.load.requests, seed=cell.concurrency)
        reference: Sequence[Completion] | None = None
        for mode in runs:
            self._show.doing(f"{cell.kind} x{cell.concurrency}: {mode}")
            run, batch = await self._run(mode, asked, result)
            result.runs.append(run)
            if reference is None:
                reference = batch.answers
            self._compare(result, mode, reference, batch.answers)
            self._clock.done(1)
            self._show.advance()
        self._show.say(_line(result))
        return result

    async def _warm_up(self, cell: Cell) -> float:
        """Both servers see the cell's width once; tokens/s of target-only. Pinned steps teach nothing."""
        asked = prompts(cell.kind, cell.concurrency, seed=-1)
        self._steering.pin(MAX_GAMMA)
        await self._speculative.batch(asked, cell.concurrency, _WARM_TOKENS)
        batch = await self._target.batch(asked, cell.concurrency, _WARM_TOKENS)
        return batch.tokens_per_s

    async def _run(self, mode: str, asked: Sequence[Prompt], result: CellResult) -> tuple[Run, Batch]:
        concurrency, tokens = result.cell.concurrency, result.load.tokens
        if mode == TARGET:
            batch = await self._target.batch(asked, concurrency, tokens)
            speculation = None
        else:
            self._steering.pin(gamma_of(mode))
            before = self._steering.counters()
            batch = await self._speculative.batch(asked, concurrency, tokens)
            speculation = Speculation.between(before, self._steering.counters())
        return Run(mode, batch.tokens, batch.seconds, speculation), batch

    def _compare(
        self, result: CellResult, mode: str, reference: Sequence[Completion], answers: Sequence[Completion]
    ) -> None:
        for request, (expected, got) in enumerate(zip(reference, answers, strict=True)):
            at = first_difference(expected.tokens, got.tokens)
            if at is None:
                continue
            one, other = ((answer.tokens[at] if at < len(answer.tokens) else -1) for answer in (expected, got))
            prefix = (*expected.prompt, *expected.tokens[:at])
            divergence = Divergence(result.cell.kind, result.cell.concurrency, mode, request, at, one, other, prefix)
            self._found.append((result, divergence))
            self._prefixes[prefix] = None

    async def _noise_of_answers(self, kind: str) -> Noise:
        """The same prompts answered alone, beside others, and read as one text: their gaps differ by noise alone."""
        asked = prompts(kind, max(CONCURRENCY))
        tokens = self._scale.noise_tokens
        by_width: list[list[Completion]] = []
        for width in CONCURRENCY:
            batch = await self._target.batch(asked[: max(width, _ALONE)], width, tokens, _LOGPROBS)
            by_width.append(batch.answers)
        found = QUIET
        for index, narrow in enumerate(by_width):
            for wide in by_width[index + 1 :]:
                for one, other in zip(narrow, wide, strict=False):
                    found |= noise_along(one.tokens, one.top, other.tokens, other.top)
        for answer in by_width[-1][: self._scale.noise_texts]:
            places = await self._target.read([*answer.prompt, *answer.tokens], _LOGPROBS)
            found |= noise_along(answer.tokens, answer.top, answer.tokens, places[len(answer.prompt) :])
        return found

    async def _noise_of_prefixes(self) -> tuple[dict[tuple[int, ...], Top], Noise]:
        """What target-only says after each diverging prefix, asked alone; and how that differs in wider batches."""
        prefixes = list(self._prefixes)
        alone = await self._next_token(prefixes, 1)
        found = QUIET
        for width in CONCURRENCY[1:]:
            some = prefixes[: self._scale.noise_prefixes]
            for prefix, top in (await self._next_token(some, width)).items():
                found |= noise_between(alone[prefix], top)
        return alone, found

    async def _next_token(self, prefixes: list[tuple[int, ...]], width: int) -> dict[tuple[int, ...], Top]:
        if not prefixes:
            return {}
        # Short lists are repeated up to the width, so that the batch is as wide as it is said to be.
        asked = (prefixes * (width // len(prefixes) + 1))[: max(width, len(prefixes))]
        batch = await self._target.batch([list(prefix) for prefix in asked], width, 1, _LOGPROBS)
        return {prefix: answer.top[0] for prefix, answer in zip(asked, batch.answers, strict=True)}


def _line(result: CellResult) -> str:
    best, ratio = result.best_fixed(), result.to_target()
    return (
        f"{result.cell.kind} x{result.cell.concurrency}: target-only {result.tokens_per_s(TARGET):.0f} tokens/s, "
        f"{best} {result.tokens_per_s(best):.0f}, adaptive {result.tokens_per_s(ADAPTIVE):.0f} ({ratio.mean:.2f}x)"
    )
