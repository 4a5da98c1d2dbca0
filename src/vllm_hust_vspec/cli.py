"""`vllm-hust-vspec`: start a vLLM server with adaptive speculation. Its flags come from the options' schema."""

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.errors import UserError, run
from vllm_hust_vspec.launcher import detect, make_plan
from vllm_hust_vspec.launcher.help import print_help
from vllm_hust_vspec.launcher.host import AN_NPU_HOST
from vllm_hust_vspec.launcher.presets import PRESETS, config_file
from vllm_hust_vspec.launcher.start import start
from vllm_hust_vspec.settings import OPTIONS, Settings, Spec
from vllm_hust_vspec.settings.sources import suggestion

OWN_FLAGS = (
    ("--preset NAME", f"A ready configuration: {', '.join(PRESETS)}."),
    ("--config FILE", "TOML file with a table [serve]; it replaces the preset's."),
    ("--dry-run", "Print the environment and the vLLM command; load and start nothing."),
    ("--json", "With --dry-run: print JSON."),
    ("--version", "Print the version."),
    ("--help", "Print this help."),
)


def main() -> None:
    """The console script."""
    run(lambda: launch(sys.argv[1:]))


def launch(arguments: list[str]) -> None:
    """Run the command line; what follows `--` goes to vLLM. Raises UserError, one line with the fix."""
    ours, extra = _split(arguments)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": []})(_command(extra))
    try:
        app(ours, standalone_mode=False, prog_name="vllm-hust-vspec")
    except UserError:
        raise
    except Exception as error:
        raise _as_user_error(error) from None


def _serve(extra: tuple[str, ...], own: dict[str, Any], flags: dict[str, Any]) -> None:
    if own["json"] and not own["dry_run"]:
        raise UserError("--json has no effect without --dry-run; add it, or leave --json out")
    file = config_file(own["preset"], own["config"], os.environ)
    settings = Settings.load(flags, file.path if file else None, os.environ, config_name=file.name if file else None)
    preset = file.preset if file else None
    host = detect()
    too_large = preset is not None and preset.keeps_target(settings) and not host.accelerated
    plan = make_plan(settings, os.environ, extra, host, AN_NPU_HOST if own["dry_run"] and too_large else None)
    if not own["dry_run"]:
        start(plan, os.environ, preset)
    for note in plan.all_notes:
        print(f"vspec: {note}", file=sys.stderr)
    print(plan.as_json() if own["json"] else plan.as_shell())


def _command(extra: tuple[str, ...]) -> Callable[..., None]:
    """A function whose signature holds every option, so that typer offers each of them."""

    def command(**given: Any) -> None:
        flags = {key: given[key] for key in OPTIONS if given[key] is not None}
        _serve(extra, {key: value for key, value in given.items() if key not in OPTIONS}, flags)

    own = [
        _parameter("preset", str | None, typer.Option(None, "--preset")),
        _parameter("config", Path | None, typer.Option(None, "--config")),
        _parameter("dry_run", bool, typer.Option(False, "--dry-run")),
        _parameter("json", bool, typer.Option(False, "--json")),
        _parameter("version", bool, typer.Option(False, "--version", callback=_print_version, is_eager=True)),
        _parameter("help", bool, typer.Option(False, "--help", "-h", callback=_print_help, is_eager=True)),
    ]
    parameters = [*own, *(_option(spec) for spec in OPTIONS.values())]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _option(spec: Spec) -> inspect.Parameter:
    """One option of the schema as a flag; its value stays text, so that every source is validated alike."""
    if spec.kind == "switch":
        return _parameter(spec.key, bool | None, typer.Option(None, f"{spec.flag}/{spec.no_flag}"))
    return _parameter(spec.key, str | None, typer.Option(None, spec.flag))


def _parameter(name: str, annotation: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"vllm-hust-vspec {__version__}")
        raise typer.Exit


def _print_help(asked: bool) -> None:
    if asked:
        print_help(OWN_FLAGS)
        raise typer.Exit


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _as_user_error(error: Exception) -> Exception:
    """A fault of the command line in one line; anything else as it is."""
    describe_fault = getattr(error, "format_message", None)
    if describe_fault is None:
        return error
    unknown = getattr(error, "option_name", None) if type(error).__name__ == "NoSuchOption" else None
    if unknown:
        keys = [*OPTIONS, *(flag.split()[0].lstrip("-").replace("-", "_") for flag, _ in OWN_FLAGS)]
        return UserError(
            f"{unknown}: unknown option{suggestion(unknown.lstrip('-').replace('-', '_'), keys, flag=True)}"
        )
    message = " ".join(str(describe_fault()).split()).rstrip(".")
    return UserError(f"{message}; --help lists the options, and native vLLM arguments go after --")


if __name__ == "__main__":
    main()
