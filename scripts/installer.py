"""Doing a set-up's work in one environment: pip and other commands, under the checkout's lock, into a log."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pip_runner import Progress, SetupError, clean_environment, run_logged
from place import Place

# Every requirements file is complete, so nothing is resolved; what is imported gets compiled then.
PIP_INSTALL = ("-m", "pip", "install", "--no-deps", "--no-compile", "--no-input", "--progress-bar", "off")


@dataclass
class Installer:
    """What the stages work with. `python` is the interpreter that the environment is made with."""

    place: Place
    python: str
    progress: Progress
    environ: Mapping[str, str]
    _lock: int | None = None

    def env(self) -> dict[str, str]:
        """The variables that every command gets."""
        env = clean_environment(self.environ, self.place.venv)
        return env | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}

    def pip_install(
        self,
        *arguments: str,
        title: str,
        variables: Mapping[str, str] | None = None,
        stop_when: Callable[[str], bool] | None = None,
    ) -> bool:
        """`pip install` in the environment; `title` names the stage in an error. False when `stop_when` held."""
        return self.run([str(self.place.python), *PIP_INSTALL, *arguments], title, variables, stop_when)

    def run(
        self,
        command: Sequence[str],
        title: str,
        variables: Mapping[str, str] | None = None,
        stop_when: Callable[[str], bool] | None = None,
    ) -> bool:
        """Run a command to its end, or until a line for which `stop_when` holds. Raises SetupError in one line."""
        return run_logged(
            command,
            stage=title,
            log=self.place.log,
            progress=self.progress,
            env=self.env() | dict(variables or {}),
            keep_open=() if self._lock is None else (self._lock,),
            stop_when=stop_when,
        )

    def make_venv(self) -> str:
        """Make the environment, or keep one that works; returns a note for the progress line."""
        place, note = self.place, ""
        # A stamp of another key tells of a moved checkout or another Python; none, of an environment made by hand.
        ours_or_bare = place.is_current("venv", place.own_key) or not place.stamp("venv").exists()
        if not (ours_or_bare and place.runs(self.env(), "-m", "pip", "--version")):
            if place.venv.is_symlink() or place.venv.is_file():
                raise SetupError(f"{place.venv} is not a folder of its own; remove it and run the same command again")
            if place.venv.exists():
                note = "remade, "
                shutil.rmtree(place.venv)
            self.run([self.python, "-m", "venv", str(place.venv)], "the virtual environment")
        place.write_stamp("venv", place.own_key)
        return note

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the set-up's lock and start its log; another set-up of this checkout is waited for."""
        log = self.place.log
        try:
            log.parent.mkdir(exist_ok=True)
            self._lock = os.open(log.parent / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SetupError(f"cannot write in {log.parent}: {error.strerror}; make the checkout writable") from error
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.progress.say("vspec: another set-up of this checkout is under way; waiting for it")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            log.write_text(time.strftime("%Y-%m-%d %H:%M:%S\n"), encoding="utf-8")
            yield
        finally:
            os.close(self._lock)
            self._lock = None
