import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from vllm_hust_vspec.demo.api import Api, Batch
from vllm_hust_vspec.demo.servers import Server
from vllm_hust_vspec.errors import UserError


class FakeServer:
    """Answers like vLLM: tokens count up from the prompt's number."""

    name, url, log = "fake", "http://127.0.0.1:1", Path("fake.log")

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.now = self.most = 0
        self.slow: set[str] = set()
        self.status = 200

    def check(self) -> None:
        """It lives."""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        if self.status != 200:
            return httpx.Response(self.status, text="no such\nmodel")
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.2 if body["prompt"] in self.slow else 0.01)
        self.now -= 1
        start = int(body["prompt"])
        tokens = [start + step for step in range(body["max_tokens"])]
        choice: dict[str, Any] = {"prompt_token_ids": [start], "token_ids": tokens, "logprobs": None}
        if "logprobs" in body:
            choice["logprobs"] = {"top_logprobs": [{f"token_id:{token}": -0.5, "token_id:9": -1.5} for token in tokens]}
        return httpx.Response(200, json={"choices": [choice]})


def _with(fake: FakeServer, use: Callable[[Api], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        api = Api(cast(Server, fake))
        await api.close()
        api._http = httpx.AsyncClient(base_url=fake.url, transport=httpx.MockTransport(fake.answer))
        try:
            return await use(api)
        finally:
            await api.close()

    return asyncio.run(main())


def _batch(fake: FakeServer, count: int, concurrency: int) -> Batch:
    return cast(Batch, _with(fake, lambda api: api.batch([str(n * 100) for n in range(count)], concurrency, 4)))


def test_answers_come_in_the_order_of_the_prompts_with_so_many_at_once() -> None:
    fake = FakeServer()
    fake.slow = {"100"}
    batch = _batch(fake, 7, 3)
    assert [answer.tokens[0] for answer in batch.answers] == [0, 100, 200, 300, 400, 500, 600]
    assert fake.most == 3


def test_every_request_is_greedy_of_fixed_length_and_asks_for_token_ids() -> None:
    fake = FakeServer()
    _batch(fake, 1, 1)
    asked = fake.bodies[0]
    assert (asked["temperature"], asked["ignore_eos"], asked["max_tokens"], asked["return_token_ids"]) == (
        0,
        True,
        4,
        True,
    )
    assert "logprobs" not in asked


def test_every_token_counts_until_the_last_answer() -> None:
    fake = FakeServer()
    fake.slow = {"0"}
    batch = _batch(fake, 6, 2)
    assert batch.seconds >= 0.2, "the slowest request is part of the work"
    assert batch.tokens == 24
    assert batch.tokens_per_s == batch.tokens / batch.seconds


def test_log_probabilities_are_by_token_id() -> None:
    answer = _with(FakeServer(), lambda api: api.complete("3", 2, 2))
    assert answer.top == [{3: -0.5, 9: -1.5}, {4: -0.5, 9: -1.5}]


def test_a_text_is_read_place_by_place() -> None:
    assert _with(FakeServer(), _read) == [{}, {5: -0.25}]


async def _read(api: Api) -> Any:
    async def post(path: str, body: dict[str, Any]) -> Any:
        assert (path, body["prompt"], body["prompt_logprobs"]) == ("/v1/completions", [1, 2], 1)
        return {"choices": [{"prompt_logprobs": [None, {"5": {"logprob": -0.25}}]}]}

    api._post = post  # type: ignore[method-assign]
    return await api.read([1, 2], 1)


def test_a_refusal_is_one_line_that_names_server_and_log() -> None:
    fake = FakeServer()
    fake.status = 404
    with pytest.raises(UserError, match=r"fake server answered 404 \(no such model\); its log is fake.log"):
        _with(fake, lambda api: api.complete("1", 1))


def test_a_server_that_stops_answering_is_one_line() -> None:
    fake = FakeServer()

    async def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone")

    fake.answer = refuse  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"stopped answering \(gone\); its log is fake.log"):
        _with(fake, lambda api: api.complete("1", 1))
