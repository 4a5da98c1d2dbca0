"""The manifest keeps the Extension Manager's contract, and is found without an import."""

import copy
import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from checkouts import REPOSITORY
from packaging.specifiers import SpecifierSet

from vllm_hust_vspec import __version__

FOLDER = REPOSITORY / "src" / "vllm_hust_vspec" / "manifests"
MANIFEST = FOLDER / "vllm-hust-extension-v0.2.json"
SCHEMA = json.loads((Path(__file__).parent / "extension-manifest.schema.json").read_text())
ID = "org.vllm-hust.vspec"


@pytest.fixture
def manifest() -> dict[str, Any]:
    return dict(json.loads(MANIFEST.read_text()))


def test_the_manifest_keeps_the_contract(manifest: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(manifest, SCHEMA, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("surprise",), 1),
        (("schema_version",), "0.3"),
        (("extension_id",), "Org.VSpec"),
        (("kind",), "plugin"),
        (("host", "version_range"), None),
        (("host", "extra"), "x"),
        (("runtime", "isolation"), "  "),
        (("implementation",), {"type": "python_entry_point"}),
        (("protocols",), [{"name": "vllm.general_plugins"}]),
        (("activation", "environment"), {"HUST_VSPEC_ENABLED": 1}),
        (("resource_claims",), []),
    ],
)
def test_the_schema_refuses_what_the_contract_refuses(
    manifest: dict[str, Any], path: tuple[str, ...], value: object
) -> None:
    broken = copy.deepcopy(manifest)
    inner = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_there_is_exactly_one_manifest_and_it_is_a_plain_file() -> None:
    assert [path.name for path in FOLDER.glob("*.json")] == [MANIFEST.name]
    assert not MANIFEST.is_symlink()


def test_its_version_is_the_distributions(manifest: dict[str, Any]) -> None:
    assert manifest["extension_version"] == __version__


@pytest.mark.parametrize(
    ("version", "admitted"),
    [
        ("0.17.2rc1.dev5871+g762f85b31.empty", True),
        ("0.32.0", True),
        ("0.17.1", False),
        ("0.20.1", False),
        ("0.22.1", False),
        ("0.23.0", True),
        ("0.33.0", False),
    ],
)
def test_its_host_range_is_what_was_verified(manifest: dict[str, Any], version: str, admitted: bool) -> None:
    assert SpecifierSet(manifest["host"]["version_range"]).contains(version) is admitted


def test_its_entry_points_are_those_of_the_distribution(manifest: dict[str, Any]) -> None:
    installed = {(point.group, point.name): point.value for point in distribution("vllm-hust-vspec").entry_points}
    assert installed["vllm_hust.extension_bundles", ID] == "vllm_hust_vspec.manifests"
    assert manifest["extension_id"] == ID
    named = [manifest["implementation"], *manifest["activation"]["entry_points"]]
    assert named
    assert all(installed[point["group"], point["name"]] == "vllm_hust_vspec.plugin:register" for point in named)


def test_its_package_imports_nothing() -> None:
    code = "import sys, vllm_hust_vspec.manifests as m; print(sorted(n for n in vars(m) if not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
