"""What a patch relies on in the host: plain data, and its check against imported modules.

A path names a module and, after a colon, an attribute chain in it: `vllm.v1.core.sched.output:SchedulerOutput`.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Symbol:
    """A module, class or function that must exist."""

    path: str

    def missing(self) -> str | None:
        found, reason = resolve(self.path)
        return reason if found is None else None


@dataclass(frozen=True, slots=True)
class Method:
    """A plain function or method with at least these parameters."""

    path: str
    parameters: tuple[str, ...] = ()

    def missing(self) -> str | None:
        found, reason = resolve(self.path)
        if found is None:
            return reason
        if not callable(found) or isinstance(found, property):
            return f"{self.path} is a {type(found).__name__}, not a function"
        have = inspect.signature(found).parameters
        lost = [name for name in self.parameters if name not in have]
        return f"{self.path} has no parameter {', '.join(lost)} (it takes {', '.join(have)})" if lost else None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a dataclass."""

    path: str
    name: str

    def missing(self) -> str | None:
        found, reason = resolve(self.path)
        if found is None:
            return reason
        if not is_dataclass(found):
            return f"{self.path} is not a dataclass"
        return None if self.name in {f.name for f in fields(found)} else f"{self.path} has no field {self.name}"


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes that instances of a class carry; they exist only once an instance does."""

    path: str
    names: tuple[str, ...]

    def missing(self) -> str | None:
        found, reason = resolve(self.path)
        return reason if found is None else None

    def missing_on(self, instance: object) -> str | None:
        lost = [name for name in self.names if not hasattr(instance, name)]
        return f"{self.path} objects have no attribute {', '.join(lost)}" if lost else None


Requirement = Symbol | Method | Field | Attributes


def resolve(path: str) -> tuple[Any, str | None]:
    """The object at a dotted path, or None and the reason why it is not there."""
    module_name, _, chain = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        return None, f"module {module_name} cannot be imported ({error})"
    for name in filter(None, chain.split(".")):
        try:
            found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
        except AttributeError:
            return None, f"{path} does not exist"
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
    return found, None
