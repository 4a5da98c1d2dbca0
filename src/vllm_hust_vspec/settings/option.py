"""How an option is declared: once, beside its meaning."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.fields import FieldInfo

Method = Literal["draft", "eagle", "eagle3", "ngram", "suffix", "mtp"]
Policy = Literal["online", "profile", "fixed"]
GraphMode = Literal["eager", "piecewise", "full-decode-only", "full"]

METHODS: tuple[str, ...] = get_args(Method)
YES = frozenset({"1", "true", "yes", "on"})
NO = frozenset({"0", "false", "no", "off"})


def _switch(value: object) -> object:
    word = str(value).strip().lower()
    if word in YES:
        return True
    if word in NO:
        return False
    raise ValueError("not a switch")


def _not_a_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a switch, not a number")
    return value


def _not_empty(value: object) -> object:
    if value == "":
        raise ValueError("empty")
    return value


def _ids(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",")) if value.strip() else ()
    return tuple(value) if isinstance(value, list) else value


Switch = Annotated[bool, BeforeValidator(_switch)]
Int = Annotated[int, BeforeValidator(_not_a_switch)]
Float = Annotated[float, BeforeValidator(_not_a_switch), Field(allow_inf_nan=False)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
File = Annotated[Path, BeforeValidator(_not_empty)]
TokenIds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_ids)]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the schema knows of an option beyond its type, range and help.

    key: its name in TOML where that is not section prefix + field. variable: whether an environment variable sets it.
    built: whether this version acts on it; built_values: the values that this version acts on, when only some.
    methods, policies, graph_modes: where it has an effect (None: everywhere). adaptive: only while gamma adapts.
    needs: keys of options without which it has no effect. off: the values that mean "not in use".
    lossless: False where it may change what the model says.
    """

    key: str | None = None
    variable: bool = True
    built: bool = True
    built_values: tuple[Any, ...] | None = None
    methods: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    graph_modes: tuple[str, ...] | None = None
    adaptive: bool = False
    needs: tuple[str, ...] = ()
    off: tuple[Any, ...] = (None, False)
    lossless: bool = True
    default_text: str | None = None
    metavar: str | None = None


def Option(  # noqa: N802  (reads as the declaration that it is, like pydantic's Field)
    default: Any,
    *,
    help: str,  # noqa: A002
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    **facts: Any,
) -> Any:
    """A field of a settings section: its default, what it does, its range, and the `Facts` about it."""
    extra: dict[str, Any] = {"facts": Facts(**facts)}
    return Field(default, description=help, ge=ge, gt=gt, le=le, json_schema_extra=extra)


class Section(BaseModel):
    """A group of options. Built directly it reads no environment and no file, and validates what it is given."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    title: ClassVar[str]
    prefix: ClassVar[str] = ""


def facts_of(field: FieldInfo) -> Facts:
    extra = field.json_schema_extra
    assert isinstance(extra, Mapping)
    facts = extra["facts"]
    assert isinstance(facts, Facts)
    return facts
