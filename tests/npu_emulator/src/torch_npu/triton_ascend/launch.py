"""A kernel launch under Triton's interpreter as one device call, on host tensors over the device's memory.

The interpreter would copy the storage behind every tensor argument to the host and back, a whole KV cache for a single
row. Given host tensors over the same memory it copies nothing.
"""

from typing import Any

from triton.runtime import interpreter

from torch_npu.graph import device_call
from torch_npu.ops.binding import host

_interpret = interpreter.GridExecutor.__call__


def _keep_arguments(executor: Any, arguments: Any, keywords: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(arguments), dict(keywords)


def _nothing_to_restore(executor: Any, *arguments: Any) -> None:
    return None


def _launch(executor: interpreter.GridExecutor, *arguments: Any, **keywords: Any) -> None:
    def run(*arguments: Any, **keywords: Any) -> None:
        _interpret(executor, *host(arguments), **{name: host(value) for name, value in keywords.items()})

    device_call(f"triton:{executor.fn.__name__}")(run)(*arguments, **keywords)


def install() -> None:
    """Route every launch of the interpreter through `device_call`."""
    executor = interpreter.GridExecutor
    executor.__call__ = _launch
    executor._init_args_hst = _keep_arguments
    executor._restore_args_dev = _nothing_to_restore
