"""The launcher starts vLLM's real server; it adapts, serves the target's tokens, is steered, and ends cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cases import CASES
from processes import BASE

STARTS_WITHIN_S = 300


@dataclass
class Server:
    url: str
    log: Path
    steering: Path
    process: subprocess.Popen[bytes]

    def steer(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.steering))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                reply: dict[str, Any] = json.loads(stream.readline())
        return reply

    def complete(self, prompt: list[int], max_tokens: int) -> list[int]:
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)
        answer.raise_for_status()
        tokens: list[int] = answer.json()["choices"][0]["token_ids"]
        return tokens


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="vs") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        steering, log = Path(folder) / "s", Path(folder) / "log"
        command = [sys.executable, "-m", "vllm_hust_vspec.cli", "--method", "draft", "--served-model-name", "tiny"]
        command += ["--target-model", str(models / "target"), "--draft-model", str(models / "draft_noisy")]
        command += ["--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8"]
        command += ["--max-num-batched-tokens", "128", "--port", str(port), "--steering-socket", str(steering)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HUST_", "VLLM_", "VSPEC_"))}
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, stdout=sink, stderr=subprocess.STDOUT, env=clean | BASE, start_new_session=True
            )
        started = Server(f"http://127.0.0.1:{port}", log, steering, process)
        try:
            _await_health(started)
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _await_health(started: Server) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if started.process.poll() is not None:
            break
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{started.url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"the server did not start:\n{started.log.read_text()[-3000:]}")


def test_it_serves_the_targets_tokens_while_gamma_adapts(server: Server, references: Any) -> None:
    want = references("target")["greedy"]
    for row, prompt in enumerate(want["prompts"]):
        assert server.complete(prompt, 24 + 5 * row) == want["tokens"][row][0]
    counters = server.steer(op="counters")
    assert (counters["method"], counters["policy"], counters["faults"]) == ("draft_model", "online", 0)
    assert counters["committed_tokens"] == sum(24 + 5 * row for row in range(len(CASES["greedy"].lengths)))
    assert sum(counters["gamma_histogram"].values()) > 0


def test_it_obeys_a_pinned_gamma(server: Server, references: Any) -> None:
    want = references("target")["greedy"]
    for gamma in (0, 3):
        before = server.steer(op="counters")["gamma_histogram"]
        assert server.steer(op="pin", gamma=gamma) == {"ok": True, "gamma": gamma}
        assert server.complete(want["prompts"][0], 24) == want["tokens"][0][0]
        after = server.steer(op="counters")["gamma_histogram"]
        assert {g for g in after if after[g] != before.get(g, 0)} == {str(gamma)}
    assert server.steer(op="pin", gamma=None)["ok"]


def test_vllms_own_metrics_count_the_drafts(server: Server) -> None:
    text = httpx.get(f"{server.url}/metrics", timeout=30).text
    drafted = re.search(r"^vllm:spec_decode_num_draft_tokens_total\S* (\S+)", text, re.MULTILINE)
    assert drafted is not None
    assert float(drafted[1]) > 0


def test_every_process_logs_what_is_effective(server: Server) -> None:
    lines = [line for line in server.log.read_text().splitlines() if "vspec 0" in line]
    pids = set()
    for role in ("front end", "engine", "worker"):
        (found,) = filter(None, (re.search(rf"vspec \S+ {role}, pid (\d+): ", line) for line in lines))
        pids.add(found[1])
    assert len(pids) == 3


def test_it_ends_on_a_signal_and_leaves_nothing(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=60)
    deadline = time.monotonic() + 30
    while _alive(server.process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _alive(server.process.pid) == []
    assert not server.steering.exists()


def _alive(group: int) -> list[int]:
    """The processes of a group that still run; zombies have ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found
