"""Writing keys and values into a paged cache, and reading them back as packed rows."""

import torch
from torch import Tensor

from torch_npu.ops.binding import npu


def scatter_rows(rows: Tensor, cache: Tensor, slots: Tensor) -> None:
    """cache[slot // block size, slot % block size] = row, for each row with a slot ≥ 0.

    rows: [≥ T, heads, D]; cache: [blocks, block size, heads, D], written in place; slots: integer [T]. Negative slots
    are skipped, as the hardware's kernels do (hosts mark padding with -1); a slot beyond the cache, which the hardware
    would write to memory that is not the cache's, raises IndexError.
    """
    if rows.shape[0] < slots.shape[0]:
        raise ValueError(f"cache scatter: {slots.shape[0]} slots for {rows.shape[0]} rows")
    capacity = cache.shape[0] * cache.shape[1]
    slots = slots.long()
    if slots.numel() and int(slots.max()) >= capacity:
        raise IndexError(f"cache scatter: slot {int(slots.max())} is beyond the cache's {capacity} slots")
    kept = slots >= 0
    block, offset = slots[kept] // cache.shape[1], slots[kept] % cache.shape[1]
    cache[block, offset] = rows[: slots.shape[0]][kept].reshape(-1, *cache.shape[2:]).to(cache.dtype)


@npu.call("_npu_reshape_and_cache")
def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor) -> None:
    """`scatter_rows` of key and of value; slot_indices must be int32."""
    if slot_indices.dtype != torch.int32:
        raise ValueError(f"_npu_reshape_and_cache: slot_indices must be int32, not {slot_indices.dtype}")
    scatter_rows(key, key_cache, slot_indices)
    scatter_rows(value, value_cache, slot_indices)


@npu.operator(
    "npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, "
    "str? cache_mode='PA_NZ') -> ()",
    meta=lambda *args, **options: None,
)
def scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """`scatter_rows` of key and of value, cache_mode "Norm"; slot_mapping int32 or int64 [T]."""
    if cache_mode != "Norm" or any(x is not None for x in (compress_lens, compress_seq_offsets, seq_lens)):
        raise NotImplementedError(
            f"npu_scatter_pa_kv_cache is emulated for cache_mode 'Norm' alone, not {cache_mode!r}"
        )
    if slot_mapping.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"npu_scatter_pa_kv_cache: slot_mapping must be int32 or int64, not {slot_mapping.dtype}")
    scatter_rows(key, key_cache, slot_mapping)
    scatter_rows(value, value_cache, slot_mapping)
