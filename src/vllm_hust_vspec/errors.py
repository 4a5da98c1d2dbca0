"""The errors that a person can mend, and how they end a command."""

import sys
from collections.abc import Callable
from typing import NoReturn


class VSpecError(Exception):
    """A fault whose message is one line that names its source and the fix."""


class UserError(VSpecError):
    """Bad input: an option, a file, a path, an environment variable."""


class HostMismatch(VSpecError):  # noqa: N818 (it names what is wrong, as the one line does)
    """The installed vLLM or vLLM-Ascend lacks something that an enabled feature needs."""


def run(command: Callable[[], None]) -> None:
    """Run a console script; end on a VSpecError with its line on stderr and exit code 2."""
    try:
        command()
    except VSpecError as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    """Print one line on stderr and exit with code 2."""
    print(f"vspec: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def not_built_yet(what: str) -> NoReturn:
    """End a command that a later version brings."""
    fail(f"{what} is not built yet in this version; see CHANGELOG.md")
