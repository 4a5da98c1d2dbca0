"""Secrets are never shown: not in a dry run, not in a summary."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
_SECRET = re.compile(r"(^|[-_.])(api[-_]?keys?|key|token|secret|passwd|password|credentials?)$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with every secret's value masked."""
    return {name: MASK if is_secret(name) else _mask_text(value) for name, value in environment.items()}


def mask_command(command: Sequence[str]) -> list[str]:
    """The argv with the value of every secret flag masked, also inside JSON values and URLs."""
    shown: list[str] = []
    secret = False
    for word in command:
        flag, equals, value = word.partition("=")
        if word.startswith("-"):
            secret = is_secret(flag)
            if equals:
                word = f"{flag}={MASK if secret else _mask_text(value)}"
                secret = False
            shown.append(word)
        else:
            shown.append(MASK if secret else _mask_text(word))
    return shown


def is_secret(name: str) -> bool:
    """Whether a flag, variable or key names a secret by its last word."""
    return _SECRET.search(name.lstrip("-")) is not None


def _mask_text(text: str) -> str:
    if text.startswith(("{", "[")):
        try:
            return json.dumps(_mask_json(json.loads(text)), ensure_ascii=False)
        except ValueError:
            pass
    return _USER_INFO.sub(f"{MASK}@", text)


def _mask_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASK if is_secret(key) else _mask_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mask_json(inner) for inner in value]
    return _USER_INFO.sub(f"{MASK}@", value) if isinstance(value, str) else value
