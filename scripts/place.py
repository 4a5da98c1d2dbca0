"""Where a virtual environment of the checkout lies, and the stamps that say what it holds."""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pins import drop_incomplete, installed

RECIPE = "1"  # part of every stamp: raise it when a stage's commands change in a way that its sources do not show
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder `name` of the checkout `root`.

    A stage that ended leaves a stamp in the environment, keyed by a hash of all that it was made from.
    """

    root: Path
    name: str = ".venv"

    @property
    def venv(self) -> Path:
        return self.root / self.name

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def log(self) -> Path:
        return self.root / ".setup" / f"setup{self.name.removeprefix('.venv')}.log"

    @property
    def site_packages(self) -> Path:
        # Both Pythons are of one version: an environment of another is not usable, see runs().
        return self.venv / "lib" / f"python{VERSION}" / "site-packages"

    def runs(self, env: Mapping[str, str], *then: str) -> bool:
        """Whether the environment's Python starts, is of our version, and (with `then`) runs that as well."""
        code = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
        commands = [["-I", "-S", "-c", code], *([list(then)] if then else [])]
        try:
            return all(
                subprocess.run([self.python, *command], capture_output=True, env=dict(env), timeout=60).returncode == 0
                for command in commands
            )
        except (OSError, subprocess.SubprocessError):
            return False

    def present(self) -> dict[str, str]:
        """{normalised name: version without its local part} of what is installed to its end."""
        return installed(self.site_packages)

    def drop_incomplete(self) -> None:
        """Remove what an interrupted pip left."""
        drop_incomplete(self.site_packages)

    # Stamps

    def key(self, *parts: str) -> str:
        """The hash for a stamp of something made from `parts`."""
        # The checkout's own path counts: neither a virtual environment nor an editable install survives a move.
        return hashlib.sha256("\0".join((RECIPE, str(self.root), *parts)).encode()).hexdigest()

    @property
    def own_key(self) -> str:
        """The key of the bare environment's stamp, `venv`."""
        return self.key(VERSION)

    def stamp(self, name: str) -> Path:
        """The file of a stamp."""
        return self.venv / ".vspec-setup" / name

    def is_current(self, name: str, key: str) -> bool:
        """Whether the stamp is there and says `key`."""
        try:
            return self.stamp(name).read_text(encoding="utf-8") == key
        except (OSError, UnicodeDecodeError):
            return False

    def write_stamp(self, name: str, key: str) -> None:
        """Leave a stamp, whole or not at all."""
        stamp = self.stamp(name)
        stamp.parent.mkdir(exist_ok=True)
        fresh = stamp.with_suffix(".new")
        fresh.write_text(key, encoding="utf-8")
        fresh.replace(stamp)
