"""Whether a local model is whole, from its files alone."""

import json
import re
import struct
from pathlib import Path
from typing import Any

from vllm_hust_vspec.errors import UserError

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
NUMBERED = re.compile(r"-\d+-of-(\d+)\.safetensors$")
LARGEST_HEADER = 100 * 2**20


def check_model(model: str, role: str) -> None:
    """Check a local model directory; a repository id that is not a local directory is vLLM's to resolve.

    role: what the model is for, as the message begins. Raises UserError with the file that is missing or damaged.
    """
    path = Path(model).expanduser()
    if not path.exists():
        if _is_path(model):
            raise UserError(
                f"{role} {model}: no such directory; name a model directory or a Hugging Face repository id"
            )
        return
    if path.is_file():
        if path.stat().st_size == 0 or path.suffix != ".gguf":
            raise UserError(f"{role} {model}: not a model directory; name the directory that holds config.json")
        return
    _read_json(path / "config.json", f"{role} {model}", "download the model again")
    _check_weights(path, f"{role} {model}")


def _is_path(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~")) or model in (".", "..") or model.count("/") > 1


def _check_weights(path: Path, whose: str) -> None:
    for shard in _shards(path, whose):
        _check_shard(shard, whose)


def _shards(path: Path, whose: str) -> list[Path]:
    """Every weight file that the model should have, there or not."""
    for index in INDEXES:
        if (path / index).exists():
            listed = _read_json(path / index, whose, "download the model again").get("weight_map")
            if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()) or not listed:
                raise UserError(f"{whose}: {index} has no weight_map; download the model again")
            return [path / name for name in sorted(set(listed.values()))]
    found = sorted(path.glob("*.safetensors"))
    counts = {int(match[1]) for file in found if (match := NUMBERED.search(file.name))}
    if counts and len(found) < max(counts):
        raise UserError(f"{whose}: {len(found)} of {max(counts)} weight files are there; download the model again")
    found = found or sorted(path.glob("pytorch_model*.bin")) or sorted(path.glob("*.gguf"))
    if not found:
        raise UserError(f"{whose}: no weights (*.safetensors); download the model again")
    return found


def _check_shard(shard: Path, whose: str) -> None:
    if not shard.is_file():
        raise UserError(f"{whose}: {shard.name} is missing; download the model again")
    size = shard.stat().st_size
    if size == 0:
        raise UserError(f"{whose}: {shard.name} is empty; download the model again")
    if shard.suffix != ".safetensors":
        return
    expected = safetensors_size(shard, size)
    if expected is None:
        raise UserError(f"{whose}: {shard.name} is not a safetensors file, or cut short; download the model again")
    if expected > size:
        raise UserError(
            f"{whose}: {shard.name} is cut short ({size:,} of {expected:,} bytes); download the model again"
        )


def safetensors_size(shard: Path, size: int) -> int | None:
    """The size in bytes that the file's own header promises; None where there is no readable header."""
    with shard.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return None
        (length,) = struct.unpack("<Q", start)
        if length > min(size - 8, LARGEST_HEADER):
            return None
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            return 8 + int(length) + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            return None


def _read_json(path: Path, whose: str, fix: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{whose}: {path.name} is missing; {fix}") from None
    except (OSError, ValueError):
        raise UserError(f"{whose}: {path.name} cannot be read as JSON; {fix}") from None
    if not isinstance(value, dict):
        raise UserError(f"{whose}: {path.name} is not a JSON object; {fix}")
    return value
