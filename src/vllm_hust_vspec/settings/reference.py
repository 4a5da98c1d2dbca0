"""The reference page of all options, generated from their schema: `python -m vllm_hust_vspec.settings.reference`."""

import sys
from pathlib import Path

from vllm_hust_vspec.errors import UserError, run
from vllm_hust_vspec.settings.catalog import OPTIONS, SECTIONS, Spec

PAGE = Path("docs/options.md")
COMMAND = "python -m vllm_hust_vspec.settings.reference"
HEAD = f"""# Options

<!-- Written by `{COMMAND}`; edit the schema in src/vllm_hust_vspec/settings instead. -->

Every option can be given as a flag, as an environment variable, or as a key under `[serve]` in a TOML file. The order
of authority is flag, variable, file, default. A value is checked the same way wherever it comes from; a bad one, an
unknown name and an option without effect in the chosen method or mode end with one line and exit code 2. Only a file's
value steps back where a flag or a variable takes its effect away; a note says so.

- A flag is `--` and the key with dashes; a switch has `--no-` as well.
- A variable is `HUST_VSPEC_` and the key in capitals. The older prefixes `HUST_SPECSLO_` and `HUST_SPECASCEND_` are
  read too, newer first.
- `--config FILE` names the file; else `VSPEC_CONFIG` does (older: `SPECSLO_CONFIG`, `SPECASCEND_CONFIG`); else
  `--preset`. A path in a file is relative to the file.
- A switch takes 1/0, true/false, yes/no or on/off.
- Native vLLM arguments go after `--`. One that contradicts an option of vSpec is refused.
- An option that is not built yet is shown by `--dry-run`, and refused at a start.

Variables that are not options: `HUST_VSPEC_ENABLED` (1 switches the plugin on; the launcher sets it),
`HUST_VSPEC_DRAFT_MODEL` and `HUST_VSPEC_EAGLE_MODEL` (the drafter of method draft and of methods eagle and eagle3; a
flag wins over them, they win over a file), `HUST_VSPEC_MODEL_DIR` and `HUST_VSPEC_MODEL_REGISTRY` (the model store).
"""


def describe(spec: Spec) -> str:
    """What an option does, with its default and what this version lacks, as help and page say it."""
    parts = [spec.help]
    if not spec.facts.lossless:
        parts.append("Not lossless: it may change what the model says.")
    if "Default:" not in spec.help:
        parts.append(f"Default: {default_text(spec)}.")
    if not spec.facts.built:
        parts.append("Not built yet.")
    elif spec.facts.built_values is not None:
        missing = [choice for choice in spec.choices if choice not in spec.facts.built_values]
        if missing:
            parts.append(f"Not built yet: {', '.join(missing)}.")
    return " ".join(parts)


def default_text(spec: Spec) -> str:
    if spec.facts.default_text is not None:
        return spec.facts.default_text
    if spec.kind == "switch":
        return "on" if spec.default else "off"
    return str(spec.default)


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_table(section) for section in SECTIONS)])


def _table(section: str) -> str:
    rows = [f"## {SECTIONS[section].title}", "", "| option | values | where | what it does |", "|---|---|---|---|"]
    rows += [
        f"| `{spec.flag}` | {_values(spec)} | {_where(spec)} | {describe(spec).replace('|', chr(92) + '|')} |"
        for spec in OPTIONS.values()
        if spec.section == section
    ]
    return "\n".join(rows) + "\n"


def _values(spec: Spec) -> str:
    if spec.choices:
        return ", ".join(f"`{choice}`" for choice in spec.choices)
    return "on, off" if spec.kind == "switch" else spec.range_text


def _where(spec: Spec) -> str:
    """The modes in which the option has an effect."""
    facts = spec.facts
    parts = [
        "method " + ", ".join(facts.methods) if facts.methods else "",
        "policy " + ", ".join(facts.policies) if facts.policies else "",
        "graph mode " + ", ".join(facts.graph_modes) if facts.graph_modes else "",
        "with " + ", ".join(OPTIONS[key].flag for key in facts.needs) if facts.needs else "",
        "adaptive speculation" if facts.adaptive else "",
    ]
    return "; ".join(part for part in parts if part) or "everywhere"


def main() -> None:
    """Write docs/options.md, or with --check end with exit code 2 where it is not current."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        raise UserError(f"{' '.join(arguments)}: unknown argument; the only one is --check")
    if not PAGE.parent.is_dir():
        raise UserError(f"{PAGE.parent}: no such directory; run this at the top of a checkout")
    if not arguments:
        PAGE.write_text(render(), encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != render():
        raise UserError(f"{PAGE} is not current; run {COMMAND}")


if __name__ == "__main__":
    run(main)
