"""Files that a command leaves: checked before the work, written whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_hust_vspec.errors import UserError


def check_output(path: Path | None) -> None:
    """Raises UserError where nothing could be written."""
    if path is None:
        return
    parent = path.absolute().parent
    if not parent.is_dir():
        raise UserError(f"{path} cannot be written: there is no directory {parent}")
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file")
    if not os.access(parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UserError(f"{path} cannot be written; choose another place")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Raises UserError where the file cannot be written."""
    write(path, lambda partial: partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n"))


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a file beside `path`, then put it in place. Raises UserError where that fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        fill(partial)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
