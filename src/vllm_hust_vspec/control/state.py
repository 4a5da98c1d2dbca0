"""The envelope around a controller's saved state, and the checks when one is opened."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_hust_vspec.control.bounds import Bounds

FORMAT = "vspec-controller"
VERSION = 1


def envelope(policy: str, bounds: Bounds, summary: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """A snapshot: who wrote it, for which gammas, a summary for people, and the state."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy,
        "min_gamma": bounds.min_gamma,
        "max_gamma": bounds.max_gamma,
        "summary": summary,
        "state": state,
    }


def opened(policy: str, bounds: Bounds, snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state inside a snapshot. Raises ValueError naming what makes it foreign or damaged."""
    if not isinstance(snapshot, Mapping):
        raise ValueError(f"it is a {type(snapshot).__name__}, not an object")
    expected = {"format": FORMAT, "version": VERSION, "policy": policy, "max_gamma": bounds.max_gamma}
    for key, value in expected.items():
        if snapshot.get(key) != value:
            raise ValueError(f"its {key} is {snapshot.get(key)!r}, this controller's is {value!r}")
    inner = snapshot.get("state")
    if not isinstance(inner, Mapping):
        raise ValueError("it carries no state")
    return inner


def number(value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within low..high. Raises ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    if not low <= value <= high:
        raise ValueError(f"{value!r} is outside {low}..{high}")
    return value


def count(value: Any, high: float = math.inf) -> int:
    """A whole number within 0..high. Raises ValueError otherwise."""
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return int(number(value, 0, high))


def array(value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """An array of finite numbers of that shape. Raises ValueError otherwise."""
    result = np.array(value, dtype=np.float64)
    if result.shape != shape or not np.isfinite(result).all():
        raise ValueError(f"an array of shape {result.shape} is not {shape}, or not finite")
    return result
