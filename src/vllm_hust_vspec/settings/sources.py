"""Where values come from: flags, environment variables, a TOML file; and how an error names the place."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings.catalog import INTERNAL, LEGACY_PREFIXES, OPTIONS, PREFIX, Spec

CONFIG_VARIABLES = ("VSPEC_CONFIG", "SPECSLO_CONFIG", "SPECASCEND_CONFIG")


class Rank(IntEnum):
    """Sources in rising order of authority."""

    DEFAULT = 0
    FILE = 1
    VARIABLE = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Given:
    """A value as a source gave it.

    where: the variable's or the file's name. derived: it follows from another option's value.
    """

    value: Any
    rank: Rank
    where: str = ""
    derived: bool = False

    def named(self, spec: Spec) -> str:
        """The value in the words of its own source, as an error begins."""
        if self.rank is Rank.VARIABLE:
            return f"{self.where}={_words(self.value)}"
        if self.rank is Rank.FILE:
            return f"{spec.key} = {_toml(self.value)} ({self.where})"
        return _as_flag(spec, self.value)

    def cited(self, spec: Spec) -> str:
        """The value as a flag, with its source: how another option's error refers to it."""
        where = f" ({self.where})" if self.where else " (default)" if self.rank is Rank.DEFAULT else ""
        return _as_flag(spec, self.value) + where


class Layer(PydanticBaseSettingsSource):
    """One source's values for pydantic-settings, by flat key."""

    def __init__(self, settings: type[BaseSettings], given: Mapping[str, Given]) -> None:
        super().__init__(settings)
        self.given = dict(given)

    def __call__(self) -> dict[str, Any]:
        nested: dict[str, dict[str, Any]] = {}
        for key, given in self.given.items():
            spec = OPTIONS[key]
            nested.setdefault(spec.section, {})[spec.field] = given.value
        return nested

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False


def from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    """Values by flat key, as a command line gives them."""
    for key in flags:
        if key not in OPTIONS:
            raise UserError(f"--{key.replace('_', '-')}: unknown option{suggestion(key, OPTIONS, flag=True)}")
    return {key: Given(value, Rank.FLAG) for key, value in flags.items()}


def from_variables(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[str]]:
    """Values by flat key, the newest name first; and a note on each old variable that nothing reads any more."""
    names = {spec.variable.removeprefix(PREFIX): key for key, spec in OPTIONS.items() if spec.variable}
    given: dict[str, Given] = {}
    notes: list[str] = []
    for prefix in (PREFIX, *LEGACY_PREFIXES):
        for variable in sorted(name for name in environ if name.startswith(prefix)):
            tail = variable.removeprefix(prefix)
            if tail in names:
                given.setdefault(names[tail], Given(environ[variable], Rank.VARIABLE, variable))
            elif tail in INTERNAL:
                continue
            elif prefix == PREFIX:
                raise UserError(f"{variable} is not a variable of vSpec{_variable_suggestion(tail, names)}")
            else:
                notes.append(f"{variable} is ignored: vSpec has no such option")
    return given, notes


def from_file(path: Path, name: str) -> dict[str, Given]:
    """Values of the table [serve] in a TOML file; a relative path in it is relative to the file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{name}: no such file; name an existing TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{name}: cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None
    for table in document:
        if table != "serve":
            raise UserError(f"{name}: unknown key {table}; every option goes under [serve]")
    table = document.get("serve", {})
    if not isinstance(table, dict):
        raise UserError(f"{name}: serve is not a table; write the options under [serve]")
    given: dict[str, Given] = {}
    for key, value in table.items():
        if key not in OPTIONS:
            raise UserError(f"{name}: unknown key {key} in [serve]{suggestion(key, OPTIONS)}")
        if OPTIONS[key].kind == "path" and isinstance(value, str) and value:
            value = str(path.parent / value)
        given[key] = Given(value, Rank.FILE, name)
    return given


def config_from_variables(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """The file that VSPEC_CONFIG, or an older name of it, points to, and the variable's name."""
    for variable in CONFIG_VARIABLES:
        if variable in environ:
            if not environ[variable]:
                raise UserError(f"{variable} is empty; name a TOML file or unset it")
            return Path(environ[variable]), variable
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean …?)" where a known word is near, else nothing."""
    near = _closest(word, known)
    return f" (did you mean {near}?)" if near else ""


def suggestion(word: str, known: Iterable[str], *, flag: bool = False) -> str:
    """The end of an "unknown" error: the nearest name, else where all names are."""
    near = _closest(word, known)
    if near is None:
        return "; docs/options.md lists them all"
    return f"; did you mean {'--' + near.replace('_', '-') if flag else near}?"


def _variable_suggestion(tail: str, names: Iterable[str]) -> str:
    if tail == "CONFIG":
        return "; did you mean VSPEC_CONFIG?"
    near = _closest(tail, [*names, *INTERNAL])
    return f"; did you mean {PREFIX}{near}?" if near else "; docs/options.md lists them all"


def _closest(word: str, known: Iterable[str]) -> str | None:
    """The name that the word is the end of, as where a group's prefix was left out; else the most similar name."""
    names = list(known)
    ending = [name for name in names if name.lower().endswith(f"_{word.lower()}")]
    return next(iter(ending or difflib.get_close_matches(word, names, n=1, cutoff=0.6)), None)


def _as_flag(spec: Spec, value: Any) -> str:
    if isinstance(value, bool):
        return spec.flag if value else spec.no_flag
    return f"{spec.flag} {_words(value)}"


def _words(value: Any) -> str:
    """A value for a one-line message: no line ends, at most 80 characters."""
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 80 else text[:77] + "..."


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{_words(value)}"' if isinstance(value, str) else _words(value)
