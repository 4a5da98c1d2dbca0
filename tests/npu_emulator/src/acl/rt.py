"""acl.rt is not emulated; vLLM-Ascend imports it for sleep mode."""

from typing import Any, NoReturn


def memcpy(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("acl.rt.memcpy is not emulated")
