"""How a verb ends: a user's mistake is one line and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable

from vllm_hust_vspec.errors import UserError


def guarded(verb: str, main: Callable[[list[str]], None], arguments: list[str]) -> None:
    try:
        main(arguments)
    except (UserError, OSError, ValueError) as error:
        print(f"demo_models {verb}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
