"""A directory of model files with a checksum file, so that a damaged one is noticed before a server loads it."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

CHECKSUMS = "checksums.json"
_SMALL = 16 << 20  # bytes; files up to this size are hashed at every check


def seal(directory: Path, source: str) -> None:
    """Record size, time and SHA-256 of every file, and what they were made from."""
    files = {path.name: _entry(path) for path in sorted(directory.iterdir()) if path.name != CHECKSUMS}
    _write(directory / CHECKSUMS, {"source": source, "files": files})


def damage(directory: Path, source: str) -> str | None:
    """What is wrong with a sealed directory, in a few words; None where it is whole.

    Small files are hashed every time; large ones where their size or time of change is not as recorded.
    """
    try:
        record = json.loads((directory / CHECKSUMS).read_text())
        files: dict[str, dict[str, Any]] = dict(record["files"])
        if record["source"] != source:
            return "it was made from something else"
        if not files:
            return f"{CHECKSUMS} lists no files"
        touched = False
        for name, recorded in files.items():
            path = directory / name
            if not path.is_file():
                return f"{name} is missing"
            status = path.stat()
            if status.st_size != recorded["size"]:
                return f"{name} has {status.st_size} bytes instead of {recorded['size']}"
            moved = status.st_mtime_ns != recorded["mtime_ns"]
            if (moved or status.st_size <= _SMALL) and sha256(path) != recorded["sha256"]:
                return f"{name} does not match its checksum"
            if moved:
                recorded["mtime_ns"] = status.st_mtime_ns
                touched = True
    except FileNotFoundError:
        return f"{CHECKSUMS} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{CHECKSUMS} is damaged"
    if touched:
        _write(directory / CHECKSUMS, {"source": source, "files": files})
    return None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256(path)}


def _write(path: Path, data: dict[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(data, indent=1))
    os.replace(partial, path)
