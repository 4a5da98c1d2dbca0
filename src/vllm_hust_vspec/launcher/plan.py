"""A run before it starts: what would be set and what would be executed."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_hust_vspec.launcher.command import build_command
from vllm_hust_vspec.launcher.environment import build_environment
from vllm_hust_vspec.launcher.host import Host, detect
from vllm_hust_vspec.launcher.masking import mask_command, mask_environment
from vllm_hust_vspec.launcher.modes import Modes, modes
from vllm_hust_vspec.settings import OPTIONS, Settings


@dataclass(frozen=True, slots=True)
class Plan:
    """environment: the variables that are set on top of the caller's. command: the argv. notes: one line each.

    host: the one that the plan is for. found: the one that is here.
    """

    settings: Settings
    host: Host
    found: Host
    modes: Modes
    environment: dict[str, str]
    command: list[str]
    notes: tuple[str, ...]

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and what a start would refuse or warn of."""
        refused = (f"not built yet in this version, a start refuses it: {option}" for option in self.settings.unbuilt())
        return (*self.notes, *lossy(self.settings), *refused)

    def as_json(self) -> str:
        """The plan as JSON, secrets masked."""
        shown = {
            "environment": mask_environment(self.environment),
            "command": mask_command(self.command),
            "host": self.found.as_json(),
            "notes": list(self.all_notes),
        }
        return json.dumps(shown, indent=2, ensure_ascii=False)

    def as_shell(self) -> str:
        """The plan as shell text that can be pasted into a terminal, secrets masked."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in mask_environment(self.environment).items()]
        words = [shlex.quote(word) for word in mask_command(self.command)]
        return "\n".join([*lines, " \\\n  ".join(_paired(words))])


def make_plan(
    settings: Settings,
    environ: Mapping[str, str],
    extra: tuple[str, ...] = (),
    host: Host | None = None,
    shown_for: Host | None = None,
) -> Plan:
    """The environment and the vLLM command for these options; nothing is loaded or started.

    host: what is here, found where not given. shown_for: another host, for a plan that only is shown.

    Raises UserError where an option is missing, has no effect on this host, or is contradicted by extra arguments.
    """
    found = host or detect()
    host = shown_for or found
    chosen = modes(settings, host)
    return Plan(
        settings=settings,
        host=host,
        found=found,
        modes=chosen,
        environment=build_environment(settings, host, environ),
        command=build_command(settings, host, chosen, environ, extra),
        notes=(*settings.notes, *chosen.notes, *_elsewhere(found, shown_for)),
    )


def _elsewhere(found: Host, shown_for: Host | None) -> list[str]:
    return [f"this host ({found.describe()}) cannot run it: shown for an Ascend NPU"] if shown_for else []


def lossy(settings: Settings) -> list[str]:
    """A line for each option in use that may change what the model says."""
    return [
        f"not lossless: {given.named(OPTIONS[key])} may change what the model says"
        for key, given in settings.given.items()
        if not OPTIONS[key].facts.lossless and not OPTIONS[key].is_off(settings.value(key))
    ]


def _paired(words: list[str]) -> list[str]:
    """The words in lines: the program with what names the model, then each flag with its values."""
    lines: list[str] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines
