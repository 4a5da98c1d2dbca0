"""The start of a server: one summary line, then vLLM in place of this process."""

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.plan import Plan, lossy
from vllm_hust_vspec.launcher.prechecks import check_start
from vllm_hust_vspec.launcher.presets import Preset


def start(plan: Plan, environ: Mapping[str, str], preset: Preset | None = None) -> NoReturn:
    """Check the plan, say in one line what starts, and become vLLM. Raises UserError where a check fails."""
    check_start(plan, environ, preset)
    for note in plan.notes:
        print(f"vspec: {note}", file=sys.stderr)
    Console(stderr=True, soft_wrap=True, highlight=False).print(summary(plan))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(plan.command[0], plan.command, {**environ, **plan.environment})
    except OSError as error:
        raise UserError(f"cannot run {plan.command[0]}: {error.strerror}; reinstall vLLM in this Python") from None


def summary(plan: Plan) -> Text:
    """What starts, on one line."""
    settings = plan.settings
    serve = settings.serve
    low = settings.adaptive.min_gamma or 0
    gamma = f"gamma {low}..{serve.gamma}, {settings.adaptive.policy}" if settings.adapts else f"gamma {serve.gamma}"
    scheduling = "asynchronous" if plan.modes.asynchronous else "synchronous"
    line = Text.assemble(
        ("vspec ", "bold"),
        (__version__, "bold"),
        "  ",
        (f"{serve.method}", "cyan"),
        "  ",
        (gamma, "green"),
        f"  {serve.target_model}  graphs {plan.modes.graph}, {scheduling}  {plan.host.describe()}  ",
        (f"http://{serve.host}:{serve.port}/v1", "underline"),
    )
    for note in lossy(settings):
        line.append(f"  {note}", style="bold yellow")
    return line
