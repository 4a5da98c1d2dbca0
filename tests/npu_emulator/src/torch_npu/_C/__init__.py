"""The names of torch_npu's native module that hosts use."""

from torch_npu import _native
from torch_npu._C import _distributed_c10d
from torch_npu.graph import TaskGroupHandle as _NPUTaskGroupHandle

_weak_ref_tensor = _native.weak_reference


def _npu_setStream(*, stream_id: int, device_index: int, device_type: int) -> None:  # noqa: N802  # the device's name
    """Make a stream current on its device, and its device current."""
    _native.set_device(device_index)
    _native.set_stream(device_index, stream_id)


__all__ = ["_NPUTaskGroupHandle", "_distributed_c10d", "_npu_setStream", "_weak_ref_tensor"]
