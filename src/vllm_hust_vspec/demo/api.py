"""The OpenAI API of a server, as far as the demo uses it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from vllm_hust_vspec.demo.servers import Server
from vllm_hust_vspec.errors import UserError

MODEL = "demo"
Prompt = str | list[int]
_TIMEOUT_S = 300.0
_WIDEST = 32


@dataclass(frozen=True, slots=True)
class Completion:
    """Token ids of prompt and answer; top: for each answered token the likeliest tokens and their log-probabilities."""

    prompt: list[int]
    tokens: list[int]
    top: list[dict[int, float]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers in the order of the prompts, and the seconds from the first request to the last answer.

    Every mode does the same work in it, prompts included. A window that ends with the first answer would not: it ends
    sooner where tokens come in bursts, and then has the same prompts to read for fewer tokens.
    """

    seconds: float
    answers: list[Completion]

    @property
    def tokens(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


class Api:
    def __init__(self, server: Server) -> None:
        self._server = server
        # trust_env off: a proxy of the user's must not stand between us and 127.0.0.1. Idle connections are given up
        # before the server, which waits 5 s, closes them under a request.
        limits = httpx.Limits(max_connections=2 * _WIDEST, max_keepalive_connections=2 * _WIDEST, keepalive_expiry=1.0)
        self._http = httpx.AsyncClient(base_url=server.url, timeout=_TIMEOUT_S, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def chat(self, question: str, tokens: int) -> str:
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens}
        reply = await self._post("/v1/chat/completions", body)
        return str(reply["choices"][0]["message"]["content"]).strip()

    async def complete(self, prompt: Prompt, tokens: int, logprobs: int | None = None) -> Completion:
        """Exactly `tokens` greedy tokens: the end-of-text token is ignored, so that every mode does equal work."""
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True}
        if logprobs:
            body |= {"logprobs": logprobs, "return_tokens_as_token_ids": True}
        choice = (await self._post("/v1/completions", body))["choices"][0]
        top = choice["logprobs"]["top_logprobs"] if logprobs else []
        return Completion(choice["prompt_token_ids"], choice["token_ids"], [_by_id(entry) for entry in top])

    async def read(self, tokens: list[int], logprobs: int) -> list[dict[int, float]]:
        """What the model finds likeliest at each place of a text, all places in one wide step; nothing at the first."""
        body = {"prompt": tokens, "max_tokens": 1, "prompt_logprobs": logprobs}
        choice = (await self._post("/v1/completions", body))["choices"][0]
        places: list[dict[str, dict[str, Any]] | None] = choice["prompt_logprobs"]
        return [{int(token): float(told["logprob"]) for token, told in (place or {}).items()} for place in places]

    async def batch(
        self, prompts: Sequence[Prompt], concurrency: int, tokens: int, logprobs: int | None = None
    ) -> Batch:
        """Answer all prompts, `concurrency` of them at any time."""
        queue = iter(enumerate(prompts))
        answers: dict[int, Completion] = {}

        async def slot() -> None:
            for index, prompt in queue:
                answers[index] = await self.complete(prompt, tokens, logprobs)

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(prompts))):
                group.create_task(slot())
        seconds = time.perf_counter() - start
        return Batch(seconds, [answers[index] for index in range(len(prompts))])

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        try:
            reply = await self._http.post(path, json={"model": MODEL, "temperature": 0} | body)
        except httpx.HTTPError as error:
            self._server.check()
            reason = str(error) or type(error).__name__
            raise UserError(
                f"the {self._server.name} server stopped answering ({reason}); its log is {self._server.log}"
            ) from error
        if reply.status_code != httpx.codes.OK:
            said = " ".join(reply.text.split())[:200]
            raise UserError(
                f"the {self._server.name} server answered {reply.status_code} ({said}); its log is {self._server.log}"
            )
        return reply.json()


def _by_id(entry: dict[str, float]) -> dict[int, float]:
    """{"token_id:17": -0.5} to {17: -0.5}"""
    return {int(name.rpartition(":")[2]): float(value) for name, value in entry.items()}
