"""The verbs of manage.sh; standard library only, since it runs before anything is installed."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hosts import Call, callers_environment, chosen_hosts, plan
from pip_runner import Interrupted, SetupError, catch_signals, clean_environment
from setup_env import ROOT

DISTRIBUTION = "vllm-hust-vspec"
LATER = (
    *("upgrade", "rollback", "list", "models", "validate", "inspect", "check", "status"),
    *("plan", "render", "enable", "disable", "forget", "run", "launch"),
)
USAGE = f"""\
Usage: ./manage.sh [--python P] [--dry-run] VERB …

  test [--host cpu|emulated-npu|all] [-- PYTEST ARGS]
        set up the host's environment (.venv or .venv-npu) and run its tests; paths or test names after --
        replace the default selection, options alone are added to it; --python names the Python that the
        environment is made with. VSPEC_TEST_ASCEND_SOURCE=FOLDER makes emulated-npu run that checkout of
        vLLM-Ascend, in .venv-npu-source, with the vLLM that it declares
  install --editable [--skip-model-setup]
        install this checkout into P (default: $VSPEC_PYTHON, else the active python3)
  uninstall
        remove the plugin from P; exit code 1 while a copy of a parent environment stays visible

Not built yet: {", ".join(LATER)}, install from a wheel.
--dry-run prints the commands and runs none of them.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        fail(f"manage.sh: {message}; ./manage.sh --help tells more")


def fail(message: str) -> NoReturn:
    """Print one line on stderr and end with exit code 2."""
    print(f"vspec: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def test(options: argparse.Namespace, pytest_arguments: Sequence[str]) -> int:
    """Set up the environments of the chosen hosts and run their tests; returns the first exit code that is not 0."""
    hosts = chosen_hosts(options.host, os.environ)
    try:
        planned = plan(hosts, ROOT, pytest_arguments, Path.cwd())
    except SetupError as error:
        fail(str(error))
    if options.dry_run:
        print("\n".join(call.as_shell() for _, calls in planned for call in calls))
        return 0
    base = callers_environment()
    results = []
    for host, calls in planned:
        place = host.set_up()
        results += [_run(call, clean_environment(base, place.venv)) for call in calls]
    return next((code for code in results if code != 0), 0)


def _run(call: Call, env: Mapping[str, str]) -> int:
    """Run a call in the checkout; on a signal, let pytest end its engines first.

    On a terminal the child and its workers get Ctrl-C from there; elsewhere it is handed on to them, once, so that
    no clean-up is cut.
    """
    interactive = sys.stdin is not None and sys.stdin.isatty()
    process = subprocess.Popen(call.command, cwd=ROOT, env={**env, **call.variables}, start_new_session=not interactive)
    while True:
        try:
            return process.wait()
        except Interrupted as interrupt:
            if not interactive or interrupt.signum != signal.SIGINT:
                os.kill(process.pid, signal.SIGINT) if interactive else os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise SystemExit(128 + interrupt.signum) from None


def target_python(options: argparse.Namespace) -> str:
    """The Python that install and uninstall work on."""
    python = options.python or os.environ.get("VSPEC_PYTHON") or "python3"
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        works = subprocess.run([python, "-I", "-c", code], capture_output=True).returncode == 0
    except OSError:
        works = False
    if not works:
        fail(f"{python} is not a Python 3.11 or newer that starts; name one with --python")
    return str(python)


def install(options: argparse.Namespace) -> int:
    """Install the checkout, editable, into the target Python."""
    if not options.editable:
        fail("install without --editable is not built yet in this version; see CHANGELOG.md")
    call = Call((target_python(options), "-m", "pip", "install", "--editable", str(ROOT)), {})
    code = _perform(call, options.dry_run)
    if code == 0 and not options.skip_model_setup:
        print("vspec: no drafter was set up (not built yet); name one with --draft-model", file=sys.stderr)
    return code


def uninstall(options: argparse.Namespace) -> int:
    """Remove the distribution from the target Python; 1 while a parent environment's copy stays visible."""
    python = target_python(options)
    call = Call((python, "-m", "pip", "uninstall", "--yes", DISTRIBUTION), {})
    code = _perform(call, options.dry_run)
    if code != 0 or options.dry_run:
        return code
    find = f"from importlib.metadata import distribution as d; print(d({DISTRIBUTION!r}).locate_file(''))"
    seen = subprocess.run([python, "-I", "-c", find], capture_output=True, text=True)
    if seen.returncode == 0:
        print(f"vspec: a copy in {seen.stdout.strip()} stays visible; remove it there", file=sys.stderr)
        return 1
    return 0


def _perform(call: Call, dry_run: bool) -> int:
    if dry_run:
        print(call.as_shell())
        return 0
    return 2 if subprocess.run(call.command, cwd=ROOT).returncode else 0


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and what stands after `--`. Ends with one line and exit code 2 on what is not known."""
    own, rest = list(arguments), []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    if any(argument in ("-h", "--help", "help") for argument in own) or not own:
        print(USAGE, end="")
        raise SystemExit(0 if own else 2)
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--python")
    common.add_argument("--dry-run", action="store_true")
    parser = _Parser(prog="manage.sh", add_help=False, parents=[common])
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    verb = verbs.add_parser("test", parents=[common], add_help=False)
    verb.add_argument("--host", choices=("cpu", "emulated-npu", "all"), default="cpu")
    verb = verbs.add_parser("install", parents=[common], add_help=False)
    verb.add_argument("--editable", action="store_true")
    verb.add_argument("--skip-model-setup", action="store_true")
    verbs.add_parser("uninstall", parents=[common], add_help=False)
    for name in LATER:
        verbs.add_parser(name, parents=[common], add_help=False)
    options, unknown = parser.parse_known_args(own)
    if options.verb in LATER:
        fail(f"manage.sh {options.verb} is not built yet in this version; see CHANGELOG.md")
    if unknown:
        hint = "; pytest's own arguments stand after --" if options.verb == "test" else ""
        fail(f"manage.sh {options.verb}: unknown argument {unknown[0]!r}{hint}; ./manage.sh --help tells more")
    if rest and options.verb != "test":
        fail(f"manage.sh {options.verb}: takes nothing after --")
    options.python = getattr(options, "python", None)
    options.dry_run = getattr(options, "dry_run", False)
    return options, rest


def main(arguments: Sequence[str]) -> int:
    """Run one verb; returns the exit code."""
    options, rest = parse(arguments)
    if options.verb == "test":
        if options.python and os.environ.get("VSPEC_MANAGED_BY") != options.python:
            # The set-up makes .venv with the interpreter that runs it.
            target = target_python(options)
            os.environ["VSPEC_MANAGED_BY"] = options.python
            os.execvp(target, [target, __file__, *arguments])
        catch_signals()
        return test(options, rest)
    return install(options) if options.verb == "install" else uninstall(options)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
