"""What requirements files pin, and what an environment holds of it; read from the disk, without pip."""

import platform
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pip_runner import SetupError


def pinned(requirements: Path) -> dict[str, str]:
    """{normalised name: version} of the lines of a requirements file that apply to this Python and machine."""
    pins: dict[str, str] = {}
    for raw in requirements.read_text(encoding="utf-8").splitlines():
        line = raw.split("#")[0].strip()
        if not line:
            continue
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        name, _, version = requirement.partition("==")
        if not version:
            raise SetupError(f"{requirements}: {line!r} is not pinned with ==")
        if _applies(marker, requirements):
            pins[normalised(name)] = version
    return pins


def _applies(marker: str, source: Path) -> bool:
    if not marker:
        return True
    if found := re.fullmatch(r'platform_machine == "(\w+)"', marker):
        return platform.machine() == found[1]
    if found := re.fullmatch(r'python_version >= "(\d+)\.(\d+)"', marker):
        return sys.version_info[:2] >= (int(found[1]), int(found[2]))
    raise SetupError(f'{source}: marker {marker!r} is none of: platform_machine == "…", python_version >= "…"')


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def installed(site_packages: Path) -> dict[str, str]:
    """{normalised name: version without its local part} of every distribution that was installed to its end."""
    found: dict[str, str] = {}
    for info in site_packages.glob("*.dist-info"):
        if _complete(info):
            name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            found[normalised(name)] = version.partition("+")[0]
    return found


def _complete(info: Path) -> bool:
    # pip writes INSTALLER and then RECORD after it has copied every other file of a wheel.
    return (info / "RECORD").is_file() and (info / "INSTALLER").is_file()


def drop_incomplete(site_packages: Path) -> None:
    """Remove what an interrupted pip leaves and would later take for an installed distribution, or for its own."""
    for info in site_packages.glob("*.dist-info"):
        if not _complete(info):
            shutil.rmtree(info)
    for aside in site_packages.glob("~*"):
        shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


def is_cpu_build(report: Mapping[str, object]) -> bool:
    """Whether a `pip install --report` names a torch that asks for no accelerator's libraries."""
    items = report.get("install")
    if not isinstance(items, list) or not items:
        return False
    requires = items[0].get("metadata", {}).get("requires_dist", [])
    return not any(
        re.match(r"(nvidia|cuda|triton|pytorch-triton|rocm|intel-)", requirement) for requirement in requires
    )
