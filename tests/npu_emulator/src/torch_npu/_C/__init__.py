"""The names of torch_npu's native module that hosts use."""

from torch_npu import _native
from torch_npu._C import _distributed_c10d
from torch_npu.graph import TaskGroupHandle as _NPUTaskGroupHandle

_weak_ref_tensor = _native.weak_reference

__all__ = ["_NPUTaskGroupHandle", "_distributed_c10d", "_weak_ref_tensor"]
