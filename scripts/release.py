"""The steps of release.sh: do the versions agree, build wheel and sdist, are both whole."""

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pip_runner import clean_environment
from setup_env import ROOT, ensure

MANIFEST = "vllm_hust_vspec/manifests/vllm-hust-extension-v0.2.json"
USAGE = """\
Usage: ./release.sh [source-check|build|check|publish]

  source-check  the versions in _version.py, the manifest and CHANGELOG.md agree
  build         source-check, then wheel and sdist into dist/
  check         (default) source-check, and dist/ holds exactly this version's wheel and sdist, both whole
  publish       not built yet
"""
IN_SDIST = (
    "run.sh",
    "manage.sh",
    "install.sh",
    "uninstall.sh",
    "release.sh",
    "scripts/lib.sh",
    "CHANGELOG.md",
    "LICENSE",
)


def fail(message: str) -> NoReturn:
    """Print one line on stderr and end with exit code 2."""
    print(f"vspec: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def source_version(root: Path) -> str:
    """The version of the checkout; fails when a place that repeats it says another."""
    text = (root / "src/vllm_hust_vspec/_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if not found:
        fail("src/vllm_hust_vspec/_version.py names no __version__")
    version = found[1]
    manifest = json.loads((root / "src" / MANIFEST).read_text(encoding="utf-8"))["extension_version"]
    if manifest != version:
        fail(f"src/{MANIFEST} has extension_version {manifest}, _version.py has {version}; make them equal")
    if f"## {version}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        fail(f"CHANGELOG.md has no section '## {version}'; write it")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if "version" in project:
        fail("pyproject.toml repeats the version; leave it to _version.py")
    return version


def artifacts(root: Path, version: str) -> tuple[Path, Path]:
    """The wheel and the sdist of a version, where build puts them."""
    stem = f"vllm_hust_vspec-{version}"
    return root / "dist" / f"{stem}-py3-none-any.whl", root / "dist" / f"{stem}.tar.gz"


def build(root: Path) -> None:
    """Build both from the checkout alone: no package index is asked."""
    version = source_version(root)
    environment = ensure("launcher", root)
    for stale in ("dist", "build"):
        shutil.rmtree(root / stale, ignore_errors=True)
    (root / "dist").mkdir()
    code = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    env = clean_environment({}, environment.venv)
    done = subprocess.run([environment.python, "-c", code], cwd=root, env=env, capture_output=True, text=True)
    shutil.rmtree(root / "build", ignore_errors=True)
    if done.returncode != 0:
        fail(f"build failed: {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}")
    for path in artifacts(root, version):
        print(f"built {path.relative_to(root)}")


def check(root: Path) -> None:
    """Both artifacts are there, alone, and whole; prints their SHA-256."""
    version = source_version(root)
    wheel, sdist = artifacts(root, version)
    there = {path.name for path in (root / "dist").glob("*")}
    if there != {wheel.name, sdist.name}:
        names = ", ".join(sorted(there)) or "nothing"
        fail(f"dist/ holds {names}; wanted {wheel.name} and {sdist.name} alone: run ./release.sh build")
    check_wheel(wheel, root, version)
    check_sdist(sdist, version)
    for path in (wheel, sdist):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


def check_wheel(wheel: Path, root: Path, version: str) -> None:
    """The wheel's RECORD, metadata, entry points, manifest and presets are those of the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    info = f"vllm_hust_vspec-{version}.dist-info"
    rows = csv.reader(io.StringIO(files[f"{info}/RECORD"].decode()))
    recorded = {name: digest for name, digest, _ in rows}
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if name != f"{info}/RECORD" and recorded.get(name) != f"sha256={digest}":
            fail(f"{wheel.name}: RECORD does not match {name}; build again")
    if f"\nVersion: {version}\n" not in files[f"{info}/METADATA"].decode():
        fail(f"{wheel.name}: METADATA is not of version {version}; build again")
    entry_points = files[f"{info}/entry_points.txt"].decode()
    for line in ("vspec = vllm_hust_vspec.plugin:register", "org.vllm-hust.vspec = vllm_hust_vspec.manifests"):
        if line not in entry_points:
            fail(f"{wheel.name}: entry_points.txt lacks {line!r}")
    wanted = {MANIFEST: root / "src" / MANIFEST}
    wanted |= {f"vllm_hust_vspec/configs/{path.name}": path for path in (root / "configs").glob("*.toml")}
    for name, source in wanted.items():
        if files.get(name) != source.read_bytes():
            fail(f"{wheel.name}: {name} is missing or differs from {source.relative_to(root)}; build again")


def check_sdist(sdist: Path, version: str) -> None:
    """The sdist carries the scripts that work on a checkout."""
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
    for name in IN_SDIST:
        if f"vllm_hust_vspec-{version}/{name}" not in names:
            fail(f"{sdist.name}: {name} is missing; see MANIFEST.in")


def publish(root: Path) -> NoReturn:
    """Nothing yet."""
    fail("release.sh publish is not built yet in this version; see CHANGELOG.md")


STEPS: Mapping[str, Callable[[Path], None]] = {
    "source-check": lambda root: print(f"version {source_version(root)} everywhere"),
    "build": build,
    "check": check,
    "publish": publish,
}


def main(arguments: Sequence[str]) -> None:
    """Run one step; `check` by default."""
    step = arguments[0] if arguments else "check"
    if step in ("-h", "--help", "help"):
        print(USAGE, end="")
    elif step not in STEPS or len(arguments) > 1:
        fail(f"release.sh: {' '.join(arguments)!r} is none of {', '.join(STEPS)}")
    else:
        STEPS[step](ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
