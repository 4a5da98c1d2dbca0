"""The named configurations that ship with vSpec."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import Settings
from vllm_hust_vspec.settings.sources import Rank, config_from_variables, nearest


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped configuration: its file in configs/, and what it is."""

    name: str
    file: str
    summary: str

    def keeps_target(self, settings: Settings) -> bool:
        """Whether the target in force is the preset's own, which takes an accelerator."""
        return settings.choices().rank("target_model") is Rank.FILE


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("draft", "qwen25-14b-05b.toml", "Qwen2.5-14B with its 0.5B draft model"),
        Preset("draft-adaptive", "qwen25-14b-05b-adaptive.toml", "draft, tuned for throughput; not lossless"),
        Preset("eagle", "qwen25-14b-eagle.toml", "Qwen2.5-14B with an EAGLE head"),
        Preset("eagle-relaxed", "qwen25-14b-eagle-relaxed.toml", "eagle with relaxed acceptance; not lossless"),
        Preset("qwen3", "qwen3-14b-17b.toml", "Qwen3-14B with Qwen3-1.7B as draft model"),
    )
}
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The TOML file of a run, how messages call it, and the preset that it is, if any."""

    path: Path
    name: str
    preset: Preset | None = None


def find_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UserError(f"unknown preset {name}{nearest(name, PRESETS)}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def config_file(preset: str | None, config: Path | None, environ: Mapping[str, str]) -> ConfigFile | None:
    """The file to read: --config, else VSPEC_CONFIG or an older name of it, else the preset's own.

    Raises UserError for an unknown preset, also where another file replaces the preset's.
    """
    chosen = find_preset(preset) if preset is not None else None
    if config is not None:
        return ConfigFile(config, str(config))
    named = config_from_variables(environ)
    if named is not None:
        path, variable = named
        if not path.is_file():
            raise UserError(f"{variable}={path}: no such file; name an existing TOML file or unset it")
        return ConfigFile(path, str(path))
    if chosen is None:
        return None
    return ConfigFile(configs_directory() / chosen.file, f"configs/{chosen.file}", chosen)


def configs_directory() -> Path:
    """Where the shipped files are: in the installed package, or at the top of a checkout."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent.parent / "configs"
