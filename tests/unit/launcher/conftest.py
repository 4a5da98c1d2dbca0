"""Small stand-ins: an interpreter with chosen distributions, and model directories."""

import json
import struct
import sys
from collections.abc import Callable
from importlib.metadata import Distribution, EntryPoints, PackageNotFoundError, distributions
from pathlib import Path

import pytest

from vllm_hust_vspec.launcher import host


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make an interpreter's metadata hold only the given distributions ("name==version"), with entry points by name."""
    site = tmp_path / "site"
    site.mkdir()

    def found() -> list[Distribution]:
        return list(distributions(path=[str(site)]))

    def distribution(name: str) -> Distribution:
        for one in found():
            if one.name == name:
                return one
        raise PackageNotFoundError(name)

    def entry_points(**wanted: str) -> EntryPoints:
        return EntryPoints(point for one in found() for point in one.entry_points).select(**wanted)

    monkeypatch.setattr(host, "distribution", distribution)
    monkeypatch.setattr(host, "entry_points", entry_points)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))

    def install(*distributions: str, points: dict[str, str] | None = None, script: bool = False) -> Path:
        for distribution in distributions:
            name, version = distribution.split("==")
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            if points and name in points:
                (info / "entry_points.txt").write_text(points[name])
        if script:
            (tmp_path / "bin").mkdir()
            (tmp_path / "bin" / "vllm").write_text("#!/bin/sh\n")
            (tmp_path / "bin" / "vllm").chmod(0o755)
        return site

    return install


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model directory whose weights are whole."""

    def write(name: str = "model", shards: int = 1) -> Path:
        path = tmp_path / name
        path.mkdir()
        (path / "config.json").write_text("{}")
        names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
        for shard in names if shards > 1 else ["model.safetensors"]:
            (path / shard).write_bytes(safetensors(64))
        if shards > 1:
            index = {"weight_map": {f"layer.{n}": shard for n, shard in enumerate(names)}}
            (path / "model.safetensors.index.json").write_text(json.dumps(index))
        return path

    return write


def safetensors(size: int) -> bytes:
    """One float32 tensor of size bytes as a safetensors file."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)
