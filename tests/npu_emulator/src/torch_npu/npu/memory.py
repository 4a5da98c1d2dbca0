"""torch.npu.memory: what the device's memory holds. Bytes; one process sees only what it allocated itself."""

from typing import Any, NoReturn

from torch_npu import _native
from torch_npu.npu.devices import Device, index_of


def _statistics(device: Device) -> dict[str, int]:
    return _native.memory_statistics(index_of(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes in tensors."""
    return _statistics(device)["allocated"]


def max_memory_allocated(device: Device = None) -> int:
    return _statistics(device)["allocated_peak"]


def memory_reserved(device: Device = None) -> int:
    """Bytes in tensors and in the pools of graphs. Freed memory is not cached."""
    return _statistics(device)["reserved"]


def max_memory_reserved(device: Device = None) -> int:
    return _statistics(device)["reserved_peak"]


def reset_peak_memory_stats(device: Device = None) -> None:
    _native.reset_peak_memory(index_of(device))


reset_max_memory_allocated = reset_peak_memory_stats


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes; total is TORCH_NPU_EMULATOR_MEMORY_GIB."""
    total = int(_native.device_memory())
    return total - memory_reserved(device), total


def memory_stats(device: Device = None) -> dict[str, int]:
    s = _statistics(device)
    return {
        "allocated_bytes.all.current": s["allocated"],
        "allocated_bytes.all.peak": s["allocated_peak"],
        "active_bytes.all.current": s["allocated"],
        "active_bytes.all.peak": s["allocated_peak"],
        "reserved_bytes.all.current": s["reserved"],
        "reserved_bytes.all.peak": s["reserved_peak"],
        "allocation.all.current": s["allocations"] - s["frees"],
        "allocation.all.allocated": s["allocations"],
        "allocation.all.freed": s["frees"],
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def empty_cache() -> None:
    """Nothing to do: freed memory goes back to the host at once."""


def _not_emulated(name: str) -> NoReturn:
    raise NotImplementedError(f"torch.npu.memory.{name} is not emulated")


def memory_snapshot(*args: Any, **kwargs: Any) -> NoReturn:
    _not_emulated("memory_snapshot")


def memory_summary(*args: Any, **kwargs: Any) -> NoReturn:
    _not_emulated("memory_summary")


def set_per_process_memory_fraction(*args: Any, **kwargs: Any) -> NoReturn:
    _not_emulated("set_per_process_memory_fraction")


def use_mem_pool(*args: Any, **kwargs: Any) -> NoReturn:
    _not_emulated("use_mem_pool")


class NPUPluggableAllocator:
    """There to be named in annotations: memory does not come from allocators of a library (sleep mode needs them)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _not_emulated("NPUPluggableAllocator")


class MemPool:
    """There to be named in annotations, as NPUPluggableAllocator is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _not_emulated("MemPool")
