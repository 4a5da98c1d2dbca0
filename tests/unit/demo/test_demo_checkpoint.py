import os
from pathlib import Path

import pytest

from vllm_hust_vspec.demo import checkpoint
from vllm_hust_vspec.demo.checkpoint import CHECKSUMS, damage, seal


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights" * 100)
    seal(tmp_path, "source")
    return tmp_path


def test_a_sealed_directory_is_whole(sealed: Path) -> None:
    assert damage(sealed, "source") is None


def test_a_truncated_file_is_named_with_its_sizes(sealed: Path) -> None:
    os.truncate(sealed / "model.safetensors", 10)
    assert damage(sealed, "source") == "model.safetensors has 10 bytes instead of 700"


def test_a_missing_file_is_named(sealed: Path) -> None:
    (sealed / "config.json").unlink()
    assert damage(sealed, "source") == "config.json is missing"


def test_a_flipped_byte_of_a_small_file_is_seen_even_with_size_and_time_kept(sealed: Path) -> None:
    path = sealed / "config.json"
    before = path.stat()
    path.write_text("[]")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert damage(sealed, "source") == "config.json does not match its checksum"


def test_a_flipped_byte_of_a_large_file_is_seen_where_its_time_changed(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SMALL", 100)
    path = sealed / "model.safetensors"
    path.write_bytes(b"Weights" + path.read_bytes()[7:])
    os.utime(path, ns=(1, 1))
    assert damage(sealed, "source") == "model.safetensors does not match its checksum"


def test_an_untouched_large_file_is_not_read_again(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_SMALL", 100)
    read: list[str] = []
    monkeypatch.setattr(checkpoint, "sha256", lambda path: read.append(path.name) or checkpoint_sha(path))
    assert damage(sealed, "source") is None
    assert read == ["config.json"]


def test_a_copied_file_is_hashed_once_and_then_trusted(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_SMALL", 100)
    os.utime(sealed / "model.safetensors", ns=(5, 5))
    assert damage(sealed, "source") is None
    read: list[str] = []
    monkeypatch.setattr(checkpoint, "sha256", lambda path: read.append(path.name) or checkpoint_sha(path))
    assert damage(sealed, "source") is None
    assert "model.safetensors" not in read


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"source": "source", "files": 3}', '{"source": "source", "files": {"config.json": 1}}'],
)
def test_damaged_checksums_are_seen(sealed: Path, text: str) -> None:
    (sealed / CHECKSUMS).write_text(text)
    assert damage(sealed, "source") == f"{CHECKSUMS} is damaged"


def test_what_was_made_from_something_else_is_made_anew(sealed: Path) -> None:
    assert damage(sealed, "another") == "it was made from something else"


def test_missing_checksums_are_seen(tmp_path: Path) -> None:
    assert damage(tmp_path, "source") == f"{CHECKSUMS} is missing"


checkpoint_sha = checkpoint.sha256
