"""Native vLLM arguments after `--`: passed through, unless they contradict an argument of ours."""

from collections.abc import Iterator, Sequence

from vllm_hust_vspec.errors import UserError

# Other spellings in vLLM of arguments that are ours, and arguments that would work against them.
ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-sc": "--speculative-config",
    "--spec-method": "--speculative-config",
    "--spec-model": "--speculative-config",
    "--spec-tokens": "--speculative-config",
    "-cc": "--compilation-config",
    "-O": "--compilation-config",
    "--cudagraph-capture-sizes": "--compilation-config",
    "--max-cudagraph-capture-size": "--compilation-config",
    "--model": "MODEL",
    "--uds": "--host",
}
OPTIONS = {"MODEL": "--target-model"}


def merge_extra(ours: Sequence[tuple[str, str | None, str]], extra: Sequence[str]) -> list[str]:
    """The extra arguments less those that repeat ours; ours are (flag, value, option of vSpec that decides it).

    Raises UserError for an argument that contradicts ours and for a stray word.
    """
    if extra and not extra[0].startswith("-"):
        raise UserError(
            f"{extra[0]} after -- is not a vLLM argument; they begin with a dash (the model: --target-model)"
        )
    known = {_stem(flag): (flag, value, option) for flag, value, option in ours}
    known["compilation-config"] = known["enforce-eager"] = known.get("compilation-config") or known.get(
        "enforce-eager", ("", None, "--graph-mode")
    )
    known.setdefault("async-scheduling", ("", None, "--async-scheduling"))
    kept: list[str] = []
    for words in _groups(extra):
        flag, _, inline = words[0].partition("=")
        name, _, dotted = flag.partition(".")
        stem = _stem(ALIASES.get(name if not name.startswith("-O") else "-O", name))
        if stem == "MODEL":
            raise UserError(f"{words[0]} after -- contradicts vSpec; use --target-model")
        found = known.get(stem)
        if found is None:
            kept += words
            continue
        value = inline or (" ".join(words[1:]) or None)
        if dotted or name in ALIASES or (_canonical(name), value) != found[:2]:
            shown = f"{found[0]} {found[1]}" if found[1] is not None else found[0] or "the method's own choice"
            raise UserError(f"{' '.join(words)} after -- contradicts {shown}; use vSpec's {found[2]}")
    return kept


def _groups(extra: Sequence[str]) -> Iterator[list[str]]:
    """Each flag with the words that follow it."""
    group: list[str] = []
    for word in extra:
        if word.startswith("-") and not _is_number(word) and group:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _canonical(flag: str) -> str:
    return flag.replace("_", "-")


def _stem(flag: str) -> str:
    """The flag without dashes and negation, as vLLM's parser reads it."""
    return _canonical(flag).lstrip("-").removeprefix("no-")
