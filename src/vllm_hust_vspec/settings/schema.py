"""`Settings`: all options of a run, loaded from flags, environment, file and defaults."""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings.adaptive import AdaptiveSettings
from vllm_hust_vspec.settings.backends import DraftSettings, EagleSettings
from vllm_hust_vspec.settings.catalog import BY_FIELD, OPTIONS
from vllm_hust_vspec.settings.checks import Choices, check, idle_options, refuse_idle
from vllm_hust_vspec.settings.option import METHODS
from vllm_hust_vspec.settings.serve import ServeSettings
from vllm_hust_vspec.settings.sources import Given, Layer, Rank, from_file, from_flags, from_variables, nearest

Layers = list[dict[str, Given]]
_layers: ContextVar[tuple[Layer, ...]] = ContextVar("settings layers", default=())


class Settings(BaseSettings):
    """Four frozen sections. Built directly it holds what it is given; `load` and `from_environment` read sources."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    serve: ServeSettings = ServeSettings()
    adaptive: AdaptiveSettings = AdaptiveSettings()
    draft: DraftSettings = DraftSettings()
    eagle: EagleSettings = EagleSettings()
    _given: dict[str, Given] = PrivateAttr(default_factory=dict)
    _notes: tuple[str, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any, /) -> None:
        """What a section was built with counts as given, as a flag would be; loading replaces this by the sources."""
        super().model_post_init(context)
        self._given = {
            key: Given(self.value(key), Rank.FLAG)
            for key, spec in OPTIONS.items()
            if spec.field in getattr(self, spec.section).model_fields_set
        }

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, *_layers.get())

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        config: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        config_name: str | None = None,
    ) -> Self:
        """Options by flat key from flags, variables and a TOML file, in this order of authority.

        config_name is how errors call the file. Raises UserError, one line that names the source and the fix.
        """
        variables, notes = from_variables(environ)
        file = from_file(config, config_name or _short(config)) if config else {}
        return cls._merge([from_flags(flags or {}), variables, file], notes)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Options from the variables alone, as the plugin reads them inside vLLM's processes.

        Method and gamma belong to the server there: see `for_server`.
        """
        variables, notes = from_variables(environ)
        return cls._merge([variables], notes, server_decides=True)

    def for_server(self, *, method: str, gamma: int) -> Self:
        """These options with the running server's method (in vLLM's words) and largest gamma, checked against them."""
        given = {key: value for key, value in self._given.items() if key not in ("method", "gamma")}
        server = {"gamma": Given(gamma, Rank.VARIABLE, "num_speculative_tokens")}
        ours = {"draft_model": "draft"}.get(method, method)
        if ours in METHODS:
            server["method"] = Given(ours, Rank.VARIABLE, "speculative config")
        return type(self)._merge([server, given], list(self._notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how the options were read, one line each."""
        return self._notes

    @property
    def given(self) -> Mapping[str, Given]:
        """The options that some source gave, by flat key."""
        return self._given

    @property
    def adapts(self) -> bool:
        """Whether gamma changes while the server runs."""
        return self.adaptive.speculation and self.adaptive.policy != "fixed"

    def value(self, key: str) -> Any:
        """The value in force of an option, by flat key."""
        spec = OPTIONS[key]
        return getattr(getattr(self, spec.section), spec.field)

    def choices(self) -> Choices:
        """All values with their sources."""
        return Choices({key: self.value(key) for key in OPTIONS}, self._given)

    def unbuilt(self) -> list[str]:
        """The given options that this version does not act on, each as its source gave it."""
        return [
            given.named(OPTIONS[key])
            for key, given in self._given.items()
            if not (given.derived or OPTIONS[key].is_built(self.value(key)) or OPTIONS[key].is_off(self.value(key)))
        ]

    def require_built(self) -> None:
        """Raise UserError for given options that this version only declares."""
        missing = self.unbuilt()
        if missing:
            verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
            raise UserError(
                f"{', '.join(missing)} {verb} not built yet in this version; leave {them} out, "
                "or use --dry-run to see the command"
            )

    def to_environment(self) -> dict[str, str]:
        """The variables that reproduce the given options in vLLM's processes."""
        return {
            spec.variable: _text(self.value(key))
            for key, spec in OPTIONS.items()
            if spec.variable and key in self._given and not self._given[key].derived
        }

    @classmethod
    def _merge(cls, layers: Layers, notes: list[str], *, server_decides: bool = False) -> Self:
        settings = cls._build(layers)
        choices = settings.choices()
        if choices.borrows_drafter(layers[-1]):
            notes.append(f"{choices.named('draft_model')} is set aside by {choices.cited('method')}")
            layers = _without(layers, "draft_model")
            settings = cls._build(layers)
            choices = settings.choices()
        while idle := next(idle_options(choices), None):
            if not choices.yields(idle):
                refuse_idle(choices, idle)
            notes.append(f"{choices.named(idle.key)} is set aside by {choices.cited(idle.because)}")
            layers = _without(layers, idle.key)
            settings = cls._build(layers)
            choices = settings.choices()
        if not (server_decides and "gamma" not in settings.given):
            check(settings.choices())
        settings._notes = tuple(notes)
        return settings

    @classmethod
    def _build(cls, layers: Layers) -> Self:
        merged: dict[str, Given] = {}
        for layer in reversed(layers):
            merged |= layer
        _select_profile(merged)
        token = _layers.set((Layer(cls, merged),))
        try:
            settings = cls()
        except ValidationError as error:
            raise _as_user_error(error, merged) from None
        finally:
            _layers.reset(token)
        settings._given = {key: merged[key] for key in OPTIONS if key in merged}
        return settings


def _without(layers: Layers, key: str) -> Layers:
    return [{name: given for name, given in layer.items() if name != key} for layer in layers]


def _select_profile(merged: dict[str, Given]) -> None:
    """A profile given alone, or over a policy of the file, selects the policy profile."""
    profile, policy = merged.get("adaptive_profile"), merged.get("adaptive_policy")
    if profile is None or (policy is not None and (policy.rank >= profile.rank or policy.rank > Rank.FILE)):
        return
    where = f"selected by {profile.named(OPTIONS['adaptive_profile'])}"
    merged["adaptive_policy"] = Given("profile", profile.rank, where, derived=True)


def _as_user_error(error: ValidationError, merged: Mapping[str, Given]) -> UserError:
    """The first fault that pydantic found, as one line in the words of the value's source."""
    fault = error.errors()[0]
    section, field, *_ = fault["loc"]
    spec = BY_FIELD[str(section), str(field)]
    given = merged[spec.key]
    fix = f"set it to {spec.range_text}"
    kind = fault["type"]
    if str(given.value).strip() == "":
        return UserError(f"{given.named(spec)} is empty; {fix}, or leave it out")
    if kind == "literal_error":
        return UserError(f"{given.named(spec)} is not a choice{nearest(str(given.value), spec.choices)}; {fix}")
    if kind in ("greater_than_equal", "greater_than", "less_than_equal"):
        return UserError(f"{given.named(spec)} is out of range; {fix}")
    what = {"switch": "a switch", "integer": "a whole number", "number": "a number", "ids": "a list of token ids"}
    return UserError(f"{given.named(spec)} is not {what.get(spec.kind, spec.range_text)}; {fix}")


def _short(path: Path) -> str:
    """The path as a person would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
