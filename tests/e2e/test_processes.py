"""The plugin in vLLM's own processes, through its real entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cases import CASES
from processes import Ended, run

IMPORTS = "import vllm.v1.engine.core, vllm.v1.worker.gpu_model_runner, vllm.v1.sample.rejection_sampler, vllm.config"
REGISTER = "from vllm.plugins import load_general_plugins; load_general_plugins()"


def test_the_multiprocess_engine_adapts_and_keeps_tokens(models: Path, references: Any) -> None:
    want = references("target")["many"]
    ended = run(
        f"""
        import json
        from vllm import LLM, SamplingParams
        if __name__ == "__main__":
            llm = LLM(model={str(models / "target")!r}, dtype="float32", max_model_len=512, max_num_seqs=8,
                      max_num_batched_tokens=128, enforce_eager=True, seed=0,
                      speculative_config={{"method": "draft_model", "num_speculative_tokens": 4,
                                           "model": {str(models / "draft_noisy")!r}}})
            prompts = [{{"prompt_token_ids": p}} for p in {want["prompts"]!r}]
            params = [SamplingParams(temperature=0, max_tokens=24 + 5 * row, ignore_eos=True) for row in range(12)]
            tokens = [[list(c.token_ids) for c in o.outputs] for o in llm.generate(prompts, params, use_tqdm=False)]
            print("TOKENS", json.dumps(tokens))
        """,
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
    )
    assert ended.code == 0, ended.err[-3000:]
    (line,) = (line for line in ended.out.splitlines() if line.startswith("TOKENS "))
    assert json.loads(line.removeprefix("TOKENS ")) == want["tokens"]
    engine, worker = _ledger(ended, "engine"), _ledger(ended, "worker")
    assert len(engine) == len(worker) == 1
    assert "gamma 0..4 (draft_model), policy online" in engine[0]
    assert "cpu-expand-kernel" in worker[0]
    assert len({_pid(line) for line in ended.ledger()}) == 3, "one line each from front end, engine and worker"


def test_enabled_without_speculation_is_inert_with_one_line(models: Path) -> None:
    ended = run(
        f"""
        from vllm import LLM, SamplingParams
        llm = LLM(model={str(models / "target")!r}, dtype="float32", max_model_len=128, enforce_eager=True)
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        print("SCHEDULER", type(scheduler).__module__, type(scheduler).__name__)
        llm.generate("a", SamplingParams(max_tokens=3), use_tqdm=False)
        """,
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
    )
    assert ended.code == 0, ended.err[-3000:]
    assert "SCHEDULER vllm.v1.core.sched.scheduler Scheduler" in ended.out
    assert len(_ledger(ended, "engine")) == 1
    assert "nothing to adapt" in _ledger(ended, "engine")[0]
    assert "cpu-expand-kernel" not in _ledger(ended, "worker")[0]


def test_disabled_it_touches_nothing_and_imports_nothing_heavy() -> None:
    ended = run(
        f"""
        {IMPORTS}
        import sys
        def state():
            modules = {{n: m for n, m in sys.modules.items() if n.split(".")[0] == "vllm" and m is not None}}
            found = {{}}
            for name, module in modules.items():
                for key, value in list(vars(module).items()):
                    found[name, key] = id(value)
                    if isinstance(value, type) and value.__module__ == name:
                        found.update({{(name, key, k): id(v) for k, v in list(vars(value).items())}})
            return found
        before, imported = state(), set(sys.modules)
        {REGISTER}
        changed = [k for k, v in state().items() if before.get(k, v) != v and k != ("vllm.plugins", "plugins_loaded")]
        print("CHANGED", changed)
        print("IMPORTED", sorted(n for n in set(sys.modules) - imported if n.startswith("vllm_hust_vspec")))
        """,
        enabled=False,
    )
    assert ended.code == 0, ended.err[-2000:]
    assert "CHANGED []" in ended.out
    imported = re.search(r"IMPORTED (.*)", ended.out)
    assert imported is not None
    assert set(json.loads(imported[1].replace("'", '"'))) == {
        "vllm_hust_vspec",
        "vllm_hust_vspec._version",
        "vllm_hust_vspec.plugin",
    }
    assert ended.ledger() == []


@pytest.mark.parametrize("order", [[IMPORTS, REGISTER], [REGISTER, IMPORTS]], ids=["host-first", "plugin-first"])
def test_both_import_orders_end_in_the_same_verified_state(order: list[str]) -> None:
    ended = run(
        f"""
        {order[0]}
        {order[1]}
        from vllm_hust_vspec.host.patches import REGISTRY
        REGISTRY.verify([applied.patch for applied in REGISTRY.applied.values()])
        import vllm.plugins; vllm.plugins.plugins_loaded = False; {REGISTER}
        print("APPLIED", sorted(REGISTRY.applied))
        """
    )
    assert ended.code == 0, ended.err[-2000:]
    hooks = ["configure-engine", "configure-front-end", "configure-worker"]
    assert f"APPLIED {sorted(['adaptive-scheduler', *hooks, 'piecewise-graphs'])}" in ended.out


def test_rollback_leaves_the_real_host_as_it_was() -> None:
    ended = run(
        f"""
        {IMPORTS}
        from vllm.config.scheduler import SchedulerConfig
        from vllm.v1.executor.abstract import Executor
        before = SchedulerConfig.get_scheduler_cls, Executor.__init__
        {REGISTER}
        from vllm_hust_vspec.host.patches import REGISTRY
        assert (SchedulerConfig.get_scheduler_cls, Executor.__init__) != before
        REGISTRY.rollback()
        assert (SchedulerConfig.get_scheduler_cls, Executor.__init__) == before
        print("RESTORED")
        """
    )
    assert "RESTORED" in ended.out, ended.err[-2000:]


BREAKAGES = {
    "method-gone": (
        "del vllm.v1.core.sched.scheduler.Scheduler._update_after_schedule",
        "_update_after_schedule does not exist",
    ),
    "parameters-renamed": (
        "vllm.v1.core.sched.scheduler.Scheduler.update_from_output = lambda self, output, result: None",
        "has no parameter scheduler_output, model_runner_output",
    ),
    "method-turned-property": (
        "vllm.v1.executor.abstract.Executor.__init__ = property(lambda self: None)",
        "Executor.__init__",
    ),
    "class-gone": ("del vllm.v1.outputs.ModelRunnerOutput", "vllm.v1.outputs:ModelRunnerOutput does not exist"),
}


@pytest.fixture(scope="module")
def broken_hosts() -> dict[str, Ended]:
    """How a process ends for each breakage: the host is imported once, and each is made in a fork of its own."""
    ended = run(
        f"""
        {IMPORTS}
        import json, os, sys
        import vllm.v1.core.sched.scheduler, vllm.v1.executor.abstract, vllm.v1.outputs
        from vllm.config.scheduler import SchedulerConfig
        def broken(breakage):
            before = SchedulerConfig.get_scheduler_cls
            exec(breakage)
            try:
                {REGISTER}
                print("SERVING", flush=True)
            finally:
                print("UNTOUCHED", SchedulerConfig.get_scheduler_cls is before, flush=True)
        found = {{}}
        for name, breakage in { ({name: code for name, (code, _) in BREAKAGES.items()})!r}.items():
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                os.dup2(out_end, 1), os.dup2(err_end, 2)
                code = 0
                try:
                    broken(breakage)
                except SystemExit as end:
                    code = end.code
                except BaseException:
                    code = 99
                sys.stderr.flush()
                os._exit(code)
            os.close(out_end), os.close(err_end)
            texts = [open(pipe).read() for pipe in (out, err)]
            found[name] = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *texts]
        print("FOUND", json.dumps(found))
        """
    )
    assert ended.code == 0, ended.err[-3000:]
    (line,) = (line for line in ended.out.splitlines() if line.startswith("FOUND "))
    return {name: Ended(*parts) for name, parts in json.loads(line.removeprefix("FOUND ")).items()}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_host_that_lacks_something_ends_with_one_line_and_nothing_applied(
    name: str, broken_hosts: dict[str, Ended]
) -> None:
    ended = broken_hosts[name]
    assert ended.code == 2, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("vspec: this host does not fit: ")
    assert BREAKAGES[name][1] in last
    assert "UNTOUCHED True" in ended.out
    assert "SERVING" not in ended.out


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HUST_VSPEC_ADAPTIVE_MIN_GAMMA", "many", "HUST_VSPEC_ADAPTIVE_MIN_GAMMA"),
        ("HUST_VSPEC_ADAPTIVE_ENTROPY_STOP", "1", "not built yet"),
        ("HUST_VSPEC_ADAPTIVE_MIN_GAMA", "1", "HUST_VSPEC_ADAPTIVE_MIN_GAMA"),
    ],
)
def test_a_bad_option_in_the_environment_ends_before_anything_loads(variable: str, value: str, says: str) -> None:
    ended = run(f"{REGISTER}\nprint('SERVING')", **{variable: value})
    assert ended.code == 2
    assert says in ended.err.strip().splitlines()[-1]
    assert "SERVING" not in ended.out


def test_a_min_gamma_above_the_servers_ends_before_the_model_loads(models: Path) -> None:
    ended = run(
        f"""
        from vllm import LLM
        LLM(model={str(models / "target")!r}, dtype="float32", max_model_len=128, enforce_eager=True,
            speculative_config={{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}})
        """,
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        HUST_VSPEC_ADAPTIVE_MIN_GAMMA="3",
    )
    assert ended.code == 2
    assert "exceeds --gamma 2 (num_speculative_tokens)" in ended.err.strip().splitlines()[-1]
    assert "Starting to load model" not in ended.out + ended.err


def test_the_cpu_hosts_sampling_is_broken_before_and_right_after_the_repair() -> None:
    ended = run(
        f"""
        {IMPORTS}
        import torch
        from types import SimpleNamespace
        from vllm.platforms import current_platform
        current_platform.register_triton_kernel_overrides()
        {REGISTER}
        from vllm_hust_vspec.host import cpu_sampling as cpu
        from vllm_hust_vspec.host.hooks import settings
        from vllm_hust_vspec.host.patches import REGISTRY
        from vllm_hust_vspec.host.registry import Facts
        from vllm.v1.sample import rejection_sampler as host
        print("BEFORE", cpu.expand_is_broken())
        server = SimpleNamespace(
            speculative_config=SimpleNamespace(method="ngram"), use_v2_model_runner=False
        )
        REGISTRY.apply(REGISTRY.select("configured", Facts(settings(), "worker", server)))
        print("EXPANDED", host.expand_batch_to_tokens(torch.tensor([0.5, 0.0]), torch.tensor([1, 3]), 3, 0, 1).tolist())
        print("BROKEN", cpu.expand_is_broken())
        """
    )
    assert "BEFORE True" in ended.out, ended.out + ended.err[-2000:]
    assert "EXPANDED [0.5, 1.0, 1.0]" in ended.out
    assert "BROKEN False" in ended.out


def _ledger(ended: Ended, role: str) -> list[str]:
    return [line for line in ended.ledger() if re.match(rf"vspec \S+ {role}, ", line)]


def _pid(line: str) -> str:
    found = re.search(r"pid (\d+)", line)
    assert found is not None, line
    return found[1]


def test_every_case_has_determined_rows() -> None:
    assert all(any(case.compared(row) for row in range(len(case.lengths))) for case in CASES.values())
