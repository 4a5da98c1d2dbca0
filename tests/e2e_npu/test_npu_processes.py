"""The plugin in vLLM's own processes on vLLM-Ascend, through its real entry point: every rank obeys one gamma."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cases import answers
from npu_engines import OPTIONS
from processes import Ended, run

# An engine in processes of its own, stepped from here; before each step the steering socket pins the next gamma, and
# each rank keeps what its runner was asked to draft.
ENGINE = """
import json, os, socket
from vllm import LLM, SamplingParams

def watch(worker):
    runner = worker.model_runner
    propose = type(runner).propose_draft_token_ids
    worker.asked = []
    def watched(*args, **kwargs):
        worker.asked.append(args[2].num_spec_tokens_to_schedule)
        return propose(runner, *args, **kwargs)
    runner.propose_draft_token_ids = watched

def asked(worker):
    return worker.asked

def steer(**request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["HUST_VSPEC_STEERING_SOCKET"])
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(request) + "\\n")
            stream.flush()
            return json.loads(stream.readline())

if __name__ == "__main__":
    task = json.loads(os.environ["TASK"])
    llm = LLM(**task["engine"])
    llm.collective_rpc(watch)
    for row, prompt in enumerate(task["prompts"]):
        params = SamplingParams(temperature=0, max_tokens=24 + 5 * row, ignore_eos=True)
        llm.llm_engine.add_request(str(row), {"prompt_token_ids": prompt}, params)
    done, step = {}, 0
    while llm.llm_engine.has_unfinished_requests():
        steer(op="pin", gamma=step % 5)
        step += 1
        for output in llm.llm_engine.step():
            if output.finished:
                done[int(output.request_id.split("-")[0])] = [list(c.token_ids) for c in output.outputs]
    counters = steer(op="counters")
    ranks = llm.collective_rpc(asked)
    print("FOUND", json.dumps([[done[row] for row in sorted(done)], ranks, counters]))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_rank_obeys_the_same_changing_gamma(ranks: int, models: Path, record_case: Any) -> None:
    want = answers(models, "target", **OPTIONS)["many"]
    speculative = {"method": "draft_model", "model": str(models / "draft_noisy"), "num_speculative_tokens": 4}
    settings: dict[str, Any] = {"model": str(models / "target"), "dtype": "float32", "max_model_len": 512}
    settings |= {"max_num_seqs": 8, "max_num_batched_tokens": 128, "enforce_eager": True, "seed": 0}
    settings |= {"enable_prefix_caching": False, "tensor_parallel_size": ranks, "speculative_config": speculative}
    with tempfile.TemporaryDirectory(prefix="vs") as folder:
        ended = _run(ENGINE, ranks, folder, {"engine": settings | OPTIONS, "prompts": want["prompts"]})
    assert ended.code == 0, ended.err[-3000:]
    (line,) = (line for line in ended.out.splitlines() if line.startswith("FOUND "))
    tokens, asked, counters = json.loads(line.removeprefix("FOUND "))
    record_case(
        method="draft_model",
        runner="V1",
        graph_mode="eager",
        scheduling=f"sync, TP {ranks}, own processes",
        drafts=counters["proposed"],
        accepted=counters["accepted"],
        identical=tokens == want["tokens"],
    )
    assert tokens == want["tokens"]
    assert len(asked) == ranks
    assert all(widths == asked[0] for widths in asked), "the ranks were asked for different numbers of drafts"
    assert set(asked[0]) == set(range(5)), f"not every gamma was tried: {asked[0]}"
    assert counters["proposed"] > counters["accepted"] > 0
    _every_process_has_its_line(ended, ranks)


def _run(code: str, ranks: int, folder: str, task: dict[str, Any]) -> Ended:
    return run(
        code,
        timeout=480,
        TASK=json.dumps(task),
        HUST_VSPEC_STEERING_SOCKET=f"{folder}/s",
        TORCH_NPU_EMULATOR_DEVICES=str(ranks),
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
        VLLM_ALLOW_INSECURE_SERIALIZATION="1",
        VLLM_DISABLE_COMPILE_CACHE=os.environ["VLLM_DISABLE_COMPILE_CACHE"],
    )


def _every_process_has_its_line(ended: Ended, ranks: int) -> None:
    lines: dict[str, list[str]] = {"front end": [], "engine": [], "worker": []}
    for line in ended.ledger():
        found = re.match(r"vspec \S+ (front end|engine|worker), pid (\d+)", line)
        assert found is not None, line
        lines[found[1]].append(line)
    assert [len(found) for found in lines.values()] == [1, 1, ranks]
    for line in lines["worker"]:
        assert "ascend-draft-model-rows" in line
