"""Text that every machine with Python has: sources and docstrings of the standard library, licences of packages."""

from __future__ import annotations

import ast
import random
import sysconfig
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from vllm_hust_vspec.demo import prompts as demo_prompts

_LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "lib2to3", "encodings", "__pycache__")
_LONG = 400  # characters; shorter docstrings are left out


@cache
def code_files() -> tuple[str, ...]:
    """Sources of the standard library, less the modules that the demo's prompts are cut from."""
    root = Path(sysconfig.get_path("stdlib"))
    held_out = set(demo_prompts._MODULES)
    paths = [
        path
        for path in sorted(root.rglob("*.py"))
        if path.stem not in held_out and not set(path.relative_to(root).parts) & set(_LEFT_OUT)
    ]
    return tuple(text for path in paths if len(text := _read(path)) > _LONG)


@cache
def prose_files() -> tuple[str, ...]:
    """Docstrings of those sources, and the different licence texts of the installed packages."""
    docs = [doc for source in code_files() for doc in _docstrings(source)]
    licences = {
        _read(Path(str(file.locate())))
        for package in distributions()
        for file in package.files or ()
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")) and file.suffix in ("", ".txt", ".md")
    }
    return (*docs, *sorted(text for text in licences if len(text) > _LONG))


def excerpt(draw: random.Random, characters: int = 1600) -> str:
    """A stretch of code or prose, from the beginning of a line."""
    text = draw.choice(code_files() if draw.random() < 0.6 else prose_files())
    start = text.rfind("\n", 0, draw.randrange(max(1, len(text) - characters // 2))) + 1
    return text[start : start + characters]


def _docstrings(source: str) -> list[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    return [doc for node in nodes if len(doc := ast.get_docstring(node) or "") > _LONG]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
