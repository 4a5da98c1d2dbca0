"""The demo's place in the user's data directory: one preparation at a time, each result whole or not there."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_data_path

from vllm_hust_vspec.errors import UserError

_LOCK_WAIT_S = 900

Say = Callable[[str], None]


def demo_home() -> Path:
    """Where the demo keeps its models, logs and results."""
    return user_data_path("vllm-hust-vspec", appauthor=False) / "demo"


@contextlib.contextmanager
def keeping(home: Path, what: str, room: int) -> Iterator[None]:
    """Hold the place for as long as the block runs; it is made where it is not there.

    what: is kept, for messages; room: bytes that it needs. Raises UserError, one line, where the disk refuses.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock", timeout=_LOCK_WAIT_S):
            yield
    except Timeout:
        raise UserError(f"another demo has been preparing {what} in {home} for long; wait for it, or end it") from None
    except OSError as error:
        raise _trouble(home, what, room, error) from error


@contextlib.contextmanager
def scratch(home: Path, what: str, room: int) -> Iterator[Path]:
    """A directory to work in that is gone afterwards. Only while the place is held; raises UserError without room."""
    for left in home.glob(".work-*"):  # of a run that was killed; the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    if (free := shutil.disk_usage(home).free) < room:
        raise UserError(
            f"{what} needs {room >> 20} MB in {home}, where {free >> 20} MB are free; "
            "make room, or set XDG_DATA_HOME to a directory on another disk"
        )
    with tempfile.TemporaryDirectory(prefix=".work-", dir=home) as work:
        yield Path(work)


def put(made: Path, target: Path) -> None:
    """Let a directory that is ready take the place of `target`; what was there stays beside `made`, in the scratch."""
    if target.exists():
        os.replace(target, made.parent / "damaged")
    os.replace(made, target)


def _trouble(home: Path, what: str, room: int, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"no room left in {home} for {what}; it needs {room >> 20} MB")
    return UserError(
        f"the demo cannot keep {what} in {home} ({error.strerror or error}); "
        "set XDG_DATA_HOME to a directory that you may write"
    )
