"""The exact vLLM command of a run."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.drafter import drafter
from vllm_hust_vspec.launcher.extra import merge_extra
from vllm_hust_vspec.launcher.host import Host
from vllm_hust_vspec.launcher.modes import Modes
from vllm_hust_vspec.launcher.presets import PRESETS
from vllm_hust_vspec.settings import Settings

HOST_METHODS = {"draft": "draft_model"}
GRAPH_MODES = {"piecewise": "PIECEWISE", "full-decode-only": "FULL_DECODE_ONLY", "full": "FULL"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One vLLM argument of ours: its flag, its value, and the option of ours that decides it."""

    flag: str
    value: str | None
    option: str

    def words(self) -> tuple[str, ...]:
        return (self.flag,) if self.value is None else (self.flag, self.value)


def build_command(
    settings: Settings, host: Host, modes: Modes, environ: Mapping[str, str], extra: tuple[str, ...] = ()
) -> list[str]:
    """The argv that starts the server; extra are native vLLM arguments of the user's.

    Raises UserError where the method, the target or the drafter is missing, or an extra argument contradicts ours.
    """
    target = _required(settings)
    arguments = list(_arguments(settings, modes, drafter(settings, environ)))
    merged = merge_extra([(a.flag, a.value, a.option) for a in arguments], extra)
    words = [word for argument in arguments for word in argument.words()]
    return [*host.serve, *host.model_flag, local_path(target), *words, *merged]


def speculative_config(settings: Settings, model: str | None) -> dict[str, Any]:
    """vLLM's --speculative-config for these options and this drafter."""
    serve = settings.serve
    method = str(serve.method)
    config: dict[str, Any] = {"method": HOST_METHODS.get(method, method)}
    if model is not None:
        config["model"] = local_path(model)
    config["num_speculative_tokens"] = serve.gamma
    if model is not None:
        config["draft_tensor_parallel_size"] = serve.draft_tensor_parallel_size
    if method == "ngram":
        config |= {"prompt_lookup_min": serve.ngram_min, "prompt_lookup_max": serve.ngram_max}
    return config


def local_path(model: str) -> str:
    """A home-relative path written out; anything else as it is."""
    return str(Path(model).expanduser()) if model.startswith("~") else model


def _required(settings: Settings) -> str:
    serve = settings.serve
    if serve.method is None:
        raise UserError(f"no method; give --method, or --preset with one of {', '.join(PRESETS)}")
    if serve.target_model is None:
        raise UserError(f"method {serve.method} has no target; give --target-model, or --preset for a ready one")
    return serve.target_model


def _arguments(settings: Settings, modes: Modes, model: str | None) -> Iterator[Argument]:
    serve = settings.serve
    if serve.served_model_name is not None:
        yield Argument("--served-model-name", serve.served_model_name, "--served-model-name")
    yield Argument("--host", serve.host, "--host")
    yield Argument("--port", str(serve.port), "--port")
    yield Argument("--dtype", serve.dtype, "--dtype")
    yield Argument("--tensor-parallel-size", str(serve.tensor_parallel_size), "--tensor-parallel-size")
    yield Argument("--max-model-len", str(serve.max_model_len), "--max-model-len")
    yield Argument("--max-num-seqs", str(serve.max_num_seqs), "--max-num-seqs")
    yield Argument("--max-num-batched-tokens", str(serve.max_num_batched_tokens), "--max-num-batched-tokens")
    yield Argument("--gpu-memory-utilization", f"{serve.gpu_memory_utilization:g}", "--gpu-memory-utilization")
    yield Argument("--generation-config", serve.generation_config, "--generation-config")
    yield _switch("enable-prefix-caching", serve.prefix_caching, "--prefix-caching")
    yield _switch("enable-chunked-prefill", serve.chunked_prefill, "--chunked-prefill")
    if modes.asynchronous is not None:
        yield _switch("async-scheduling", modes.asynchronous, "--async-scheduling")
    if modes.graph == "eager":
        yield Argument("--enforce-eager", None, "--graph-mode")
    else:
        yield Argument("--compilation-config", _json({"cudagraph_mode": GRAPH_MODES[modes.graph]}), "--graph-mode")
    yield Argument("--speculative-config", _json(speculative_config(settings, model)), "--method, --gamma and others")


def _switch(name: str, on: bool, option: str) -> Argument:
    return Argument(f"--{name}" if on else f"--no-{name}", None, option)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
