"""Graph mode of the emulated device. `device_call(name)` is how an operation written in Python becomes part of it."""

from torch_npu.graph.calls import device_call, dispatch
from torch_npu.graph.external_event import ExternalEvent
from torch_npu.graph.npu_graph import (
    NPUGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_npu.graph.state import statistics
from torch_npu.graph.tasks import (
    TaskGroupHandle,
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
)

__all__ = [
    "ExternalEvent",
    "NPUGraph",
    "TaskGroupHandle",
    "device_call",
    "dispatch",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "statistics",
]
