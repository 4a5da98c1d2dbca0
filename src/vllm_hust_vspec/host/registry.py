"""The patch registry: every change that vSpec makes in its host, as data.

Patches apply all or none, are verified after, apply once however often they are asked for, and can be rolled back.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host.requirements import Attributes, Requirement, resolve
from vllm_hust_vspec.settings import Settings

Stage = Literal["register", "configured"]
Role = Literal["engine", "worker"]
MARK = "__vspec_patch__"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a patch's condition may look at. `vllm_config` and `role` are known from the configured stage on."""

    settings: Settings
    role: Role | None = None
    vllm_config: Any = None


@dataclass(frozen=True, slots=True)
class Patch:
    """One replaced function or method of the host.

    `replace(original, *args, **kwargs)` runs in place of `target`; `holders` are modules that imported the original by
    name and are repointed too; `until` says what makes the patch needless.
    """

    name: str
    target: str
    reason: str
    replace: Callable[..., Any]
    until: str
    stage: Stage = "configured"
    when: Callable[[Facts], bool] = lambda facts: True
    requires: tuple[Requirement, ...] = ()
    holders: tuple[str, ...] = ()

    def instance_requirements(self) -> Iterator[Attributes]:
        return (need for need in self.requires if isinstance(need, Attributes))


@dataclass(slots=True)
class Applied:
    """What is needed to undo a patch: each place (owner, name) and what stood in its `__dict__`, if anything."""

    patch: Patch
    original: Any
    places: list[tuple[Any, str, Any]] = field(default_factory=list)


_ABSENT = object()


class Registry:
    def __init__(self, patches: Iterable[Patch]) -> None:
        self.patches = tuple(patches)
        self.applied: dict[str, Applied] = {}
        for what, values in (
            ("name", [p.name for p in self.patches]),
            ("target", [p.target for p in self.patches]),
        ):
            twice = {value for value in values if values.count(value) > 1}
            if twice:
                raise ValueError(f"two patches share the {what} {', '.join(sorted(twice))}")

    def select(self, stage: Stage, facts: Facts) -> list[Patch]:
        """The patches of a stage whose condition holds here."""
        return [patch for patch in self.patches if patch.stage == stage and patch.when(facts)]

    def problems(self, patches: Iterable[Patch]) -> list[str]:
        """One line for each thing that the patches need and the host lacks; changes nothing."""
        lines = []
        for patch in patches:
            if patch.name in self.applied:
                continue
            for need in patch.requires:
                lost = need.missing()
                if lost:
                    lines.append(f"{lost}; needed by {patch.name}: {patch.reason}")
            found, reason = resolve(patch.target)
            if found is None or not inspect.isfunction(found):
                lines.append(f"{reason or patch.target + ' is not a function'}; patched by {patch.name}")
        return lines

    def apply(self, patches: Iterable[Patch]) -> list[Patch]:
        """Apply all of the patches or none of them, then verify. Returns those that were not applied before.

        Raises HostMismatch with the first missing thing when the host does not carry what they rely on.
        """
        fresh = [patch for patch in patches if patch.name not in self.applied]
        problems = self.problems(fresh)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise HostMismatch(
                f"this host does not fit: {problems[0]}{more}; install a vLLM that README.md names as tested, "
                "or unset HUST_VSPEC_ENABLED to serve without vSpec"
            )
        try:
            for patch in fresh:
                self._install(patch)
            self.verify(fresh)
        except BaseException:
            self.rollback([patch.name for patch in fresh])
            raise
        return fresh

    def verify(self, patches: Iterable[Patch]) -> None:
        """Raise HostMismatch unless each patch is in force and no imported module still holds what it replaced."""
        originals: dict[int, Patch] = {}
        for patch in patches:
            found, _ = resolve(patch.target)
            if getattr(found, MARK, None) != patch.name:
                raise HostMismatch(f"{patch.target} was replaced by something else after {patch.name} was applied")
            originals[id(self.applied[patch.name].original)] = patch
        if not originals:
            return
        for module in list(sys.modules.values()):
            if not isinstance(module, ModuleType) or module.__name__.startswith("vllm_hust_vspec"):
                continue
            for name, value in list(vars(module).items()):
                patch_left = originals.get(id(value))
                if patch_left is not None:
                    raise HostMismatch(
                        f"{module.__name__}.{name} still holds the function that {patch_left.name} replaces; "
                        "it was imported before the patch and is not among its holders"
                    )

    def rollback(self, names: Iterable[str] | None = None) -> None:
        """Undo patches, the last applied first; all of them when no names are given."""
        chosen = set(self.applied if names is None else names)
        for name in [name for name in reversed(self.applied) if name in chosen]:
            for owner, attribute, before in reversed(self.applied.pop(name).places):
                if before is _ABSENT:
                    delattr(owner, attribute)
                else:
                    setattr(owner, attribute, before)

    def _install(self, patch: Patch) -> None:
        module_name, _, chain = patch.target.partition(":")
        *parents, attribute = chain.split(".")
        owner, _ = resolve(f"{module_name}:{'.'.join(parents)}")
        static = inspect.getattr_static(owner, attribute)
        original = static.__func__ if isinstance(static, (staticmethod, classmethod)) else static
        replacement = _wrapper(patch, original)
        installed: Any = type(static)(replacement) if isinstance(static, (staticmethod, classmethod)) else replacement
        record = self.applied[patch.name] = Applied(patch, original)
        _put(record, owner, attribute, installed)
        for holder in patch.holders:
            module = sys.modules.get(holder)
            if module is not None and vars(module).get(attribute) is original:
                _put(record, module, attribute, installed)


def _wrapper(patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return patch.replace(original, *args, **kwargs)

    setattr(patched, MARK, patch.name)
    return patched


def _put(record: Applied, owner: Any, attribute: str, value: Any) -> None:
    record.places.append((owner, attribute, vars(owner).get(attribute, _ABSENT)))
    setattr(owner, attribute, value)
