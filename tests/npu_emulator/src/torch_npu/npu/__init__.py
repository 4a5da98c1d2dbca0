"""torch.npu of the emulated device. Calling a function that is not emulated raises NotImplementedError naming it."""

from collections.abc import Callable
from typing import Any, NoReturn

from torch_npu.graph import (
    ExternalEvent,
    NPUGraph,
    graph,
    graph_pool_handle,
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_npu.npu import memory, random
from torch_npu.npu.devices import (
    NPUDeviceProperties,
    _is_in_bad_fork,
    _lazy_init,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_soc_version,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_compile_mode,
    set_device,
    set_option,
    synchronize,
)
from torch_npu.npu.memory import (
    MemPool,
    NPUPluggableAllocator,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_npu.npu.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_npu.npu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)


class config:  # noqa: N801  (the name is torch_npu's)
    """Settings that hosts assign to; none has an effect here."""

    allow_internal_format = False


NOT_EMULATED = frozenset(
    {
        "caching_allocator_alloc",
        "caching_allocator_delete",
        "get_device_limit",
        "get_stream_limit",
        "ipc_collect",
        "memory_snapshot",
        "memory_summary",
        "mstx",
        "npugraph_ex",
        "set_device_limit",
        "set_dump",
        "set_per_process_memory_fraction",
        "set_stream_limit",
        "stress_detect",
        "utilization",
    }
)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in NOT_EMULATED:
        raise AttributeError(f"module 'torch.npu' has no attribute {name!r}")

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torch.npu.{name} is not emulated")

    missing.__name__ = missing.__qualname__ = name
    return missing


__all__ = [
    "Event",
    "ExternalEvent",
    "MemPool",
    "NPUDeviceProperties",
    "NPUGraph",
    "NPUPluggableAllocator",
    "Stream",
    "StreamContext",
    "_is_in_bad_fork",
    "_lazy_init",
    "config",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_soc_version",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_compile_mode",
    "set_device",
    "set_option",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]
