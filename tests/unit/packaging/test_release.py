"""A release is built from the checkout alone, and what it lacks is found before anybody installs it."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from checkouts import REPOSITORY, VERSION

import release

NEEDED = (
    "pyproject.toml",
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "src",
    "configs",
    "scripts",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with wheel and sdist in dist/, built as release.sh does but by the tests' own Python."""
    root = tmp_path_factory.mktemp("release") / "a checkout"
    root.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in NEEDED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, root / name, symlinks=True, ignore=leave)
        else:
            shutil.copy(source, root)
    for script in REPOSITORY.glob("*.sh"):
        shutil.copy(script, root)
    (root / "dist").mkdir()
    code = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy", symlinks=True))


def refusal(step: str, root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        release.STEPS[step](root)
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_versions_agree_everywhere() -> None:
    assert release.source_version(REPOSITORY) == VERSION


def test_a_built_release_is_whole(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release.check(built)
    lines = capsys.readouterr().out.splitlines()
    names = [f"vllm_hust_vspec-{VERSION}-py3-none-any.whl", f"vllm_hust_vspec-{VERSION}.tar.gz"]
    assert [line.split("  ")[1] for line in lines] == names


def test_the_wheel_carries_presets_manifest_and_types_but_no_tests(built: Path) -> None:
    wheel, _ = release.artifacts(built, VERSION)
    names = set(zipfile.ZipFile(wheel).namelist())
    presets = {f"vllm_hust_vspec/configs/{path.name}" for path in (REPOSITORY / "configs").glob("*.toml")}
    assert presets
    assert presets | {release.MANIFEST, "vllm_hust_vspec/py.typed"} <= names
    assert all(name.startswith(("vllm_hust_vspec/", f"vllm_hust_vspec-{VERSION}.dist-info/")) for name in names)


def test_an_installed_wheel_finds_its_presets_and_version(built: Path, tmp_path: Path) -> None:
    wheel, _ = release.artifacts(built, VERSION)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        tmp_path / "site",
        wheel,
    ]
    subprocess.run(pip, check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import vllm_hust_vspec as v; "
        "from importlib.resources import files; print(v.__file__, v.__version__, "
        "sorted(p.name for p in files('vllm_hust_vspec').joinpath('configs').iterdir()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    presets = sorted(path.name for path in (REPOSITORY / "configs").glob("*.toml"))
    assert done.stdout == f"{tmp_path}/site/vllm_hust_vspec/__init__.py {VERSION} {presets}\n"


def test_a_manifest_of_another_version_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "src" / release.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extension_version": "0.1"}))
    assert f"has extension_version 0.1, _version.py has {VERSION}" in refusal("source-check", copy, capsys)


def test_a_version_without_a_changelog_entry_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n")
    assert f"no section '## {VERSION}'" in refusal("source-check", copy, capsys)


def test_leftovers_in_dist_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "dist" / "old.whl").touch()
    assert "old.whl" in refusal("check", copy, capsys)


def test_a_wheel_that_was_changed_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel, _ = release.artifacts(copy, VERSION)
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data + b" " if name == release.MANIFEST else data)
    assert f"RECORD does not match {release.MANIFEST}" in refusal("check", copy, capsys)


def test_a_preset_edited_after_the_build_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = next((copy / "configs").glob("*.toml"))
    preset.write_text(preset.read_text() + "\n")
    assert f"vllm_hust_vspec/configs/{preset.name} is missing or differs" in refusal("check", copy, capsys)


def test_publishing_is_not_built_yet(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "publish is not built yet" in refusal("publish", copy, capsys)
