"""The table of all options, derived from the sections that declare them."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from vllm_hust_vspec.settings.adaptive import AdaptiveSettings
from vllm_hust_vspec.settings.backends import DraftSettings, EagleSettings
from vllm_hust_vspec.settings.option import Facts, Section, facts_of
from vllm_hust_vspec.settings.serve import ServeSettings

PREFIX = "HUST_VSPEC_"
LEGACY_PREFIXES = ("HUST_SPECSLO_", "HUST_SPECASCEND_")
INTERNAL = frozenset({"ENABLED", "DRAFT_MODEL", "EAGLE_MODEL", "MODEL_DIR", "MODEL_REGISTRY"})
SECTIONS: dict[str, type[Section]] = {
    "serve": ServeSettings,
    "adaptive": AdaptiveSettings,
    "draft": DraftSettings,
    "eagle": EagleSettings,
}


@dataclass(frozen=True, slots=True)
class Spec:
    """One option, as every source and the reference page see it."""

    section: str
    field: str
    key: str
    help: str
    default: Any
    kind: str
    choices: tuple[str, ...]
    low: float | None
    low_is_open: bool
    high: float | None
    facts: Facts

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def no_flag(self) -> str:
        return "--no-" + self.key.replace("_", "-")

    @property
    def variable(self) -> str | None:
        return PREFIX + self.key.upper() if self.facts.variable else None

    @property
    def range_text(self) -> str:
        """What may be given, as it reads after "set it to"."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind == "switch":
            return "1/0, true/false, yes/no or on/off"
        low, high = _plain(self.low), _plain(self.high)
        if self.low is not None and self.high is not None:
            return f"more than {low} and at most {high}" if self.low_is_open else f"{low}..{high}"
        if self.low is not None:
            return f"more than {low}" if self.low_is_open else f"{low} or more"
        return {"path": "a path", "ids": "token ids with commas between them"}.get(self.kind, "a non-empty text")

    def is_off(self, value: Any) -> bool:
        return any(value is off or (value == off and type(value) is type(off)) for off in self.facts.off)

    def is_built(self, value: Any) -> bool:
        return self.facts.built and (self.facts.built_values is None or value in self.facts.built_values)


def _plain(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _kind(annotation: Any) -> tuple[str, tuple[str, ...]]:
    """The kind of value and, for a choice, its words."""
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    if get_origin(annotation) is Literal:
        return "choice", get_args(annotation)
    if get_origin(annotation) is tuple:
        return "ids", ()
    return {bool: "switch", int: "integer", float: "number", str: "text"}.get(annotation, "path"), ()


def _bounds(field: FieldInfo) -> tuple[float | None, bool, float | None]:
    low: float | None = None
    high: float | None = None
    is_open = False
    for mark in field.metadata:
        if isinstance(mark, annotated_types.Ge):
            low = mark.ge  # type: ignore[assignment]
        elif isinstance(mark, annotated_types.Gt):
            low, is_open = mark.gt, True  # type: ignore[assignment]
        elif isinstance(mark, annotated_types.Le):
            high = mark.le  # type: ignore[assignment]
    return low, is_open, high


def _specs() -> Iterator[Spec]:
    for name, section in SECTIONS.items():
        for field_name, field in section.model_fields.items():
            facts = facts_of(field)
            kind, choices = _kind(field.annotation)
            low, low_is_open, high = _bounds(field)
            yield Spec(
                section=name,
                field=field_name,
                key=facts.key or section.prefix + field_name.rstrip("_"),
                help=field.description or "",
                default=field.default,
                kind=kind,
                choices=choices,
                low=low,
                low_is_open=low_is_open,
                high=high,
                facts=facts,
            )


OPTIONS: dict[str, Spec] = {spec.key: spec for spec in _specs()}
BY_FIELD: dict[tuple[str, str], Spec] = {(spec.section, spec.field): spec for spec in OPTIONS.values()}
