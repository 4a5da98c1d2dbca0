"""torch.distributed backend "hccl": gloo on host tensors over the device's memory.

A collective is one device operation, so graphs record and repeat it. It is over when the call returns, async_op or not:
overlap of communication and computation does not show. Point-to-point calls do return before they are over.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    ReduceScatterOptions,
    _create_work_from_future,
)

from torch_npu.graph import device_call
from torch_npu.graph.state import recording_graph

BACKEND = "hccl"


def _host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ops.npu_emu.cpu_alias(value)
    if isinstance(value, (list, tuple)):
        return [_host(item) for item in value]
    return value


def _collective(name: str, default_options: Callable[[], Any] | None = None) -> Callable[..., Any]:
    """The collective `name` of gloo, with every tensor argument as host tensor, finished before it returns."""

    @device_call(f"hccl:{name}")
    def run(group: "ProcessGroupHccl", *arguments: Any, **options: Any) -> Any:
        work = getattr(group.gloo, name)(*_host(arguments), **options)
        work.wait()
        return work

    def collective(group: "ProcessGroupHccl", *arguments: Any, **options: Any) -> Any:
        if (
            default_options is not None
            and not options
            and (not arguments or isinstance(arguments[-1], (torch.Tensor, list)))
        ):
            arguments = (*arguments, default_options())
        return run(group, *arguments, **options)

    collective.__name__ = name
    return collective


class ProcessGroupHccl(dist.ProcessGroup):
    """What torch.distributed makes for backend "hccl"."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._group_name = ""
        self._group_description = ""

    allreduce = _collective("allreduce", AllreduceOptions)
    allreduce_coalesced = _collective("allreduce_coalesced")
    broadcast = _collective("broadcast")
    reduce = _collective("reduce")
    allgather = _collective("allgather", AllgatherOptions)
    _allgather_base = _collective("_allgather_base", AllgatherOptions)
    allgather_into_tensor_coalesced = _collective("allgather_into_tensor_coalesced")
    gather = _collective("gather")
    scatter = _collective("scatter")
    reduce_scatter = _collective("reduce_scatter", ReduceScatterOptions)
    _reduce_scatter_base = _collective("_reduce_scatter_base", ReduceScatterOptions)
    alltoall_base = _collective("alltoall_base", AllToAllOptions)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:  # noqa: A002
        return self._allgather_base(output, input)

    def reduce_scatter_single(self, outputTensor: torch.Tensor, inputTensor: torch.Tensor, opts: Any = None) -> Any:  # noqa: N803
        options = () if opts is None else (opts,)
        return self._reduce_scatter_base(outputTensor, inputTensor, *options)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any = None) -> Any:
        """Tensor i of `inputs` goes to rank i, tensor i of `outputs` comes from it: gloo has none for lists."""
        return _exchange(self, outputs, inputs)

    def send(self, tensors: list[torch.Tensor], destination: int, tag: int = 0) -> Any:
        _refuse_capture("send")
        return self.gloo.send(_host(tensors), destination, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Any:
        _refuse_capture("recv")
        return self.gloo.recv(_host(tensors), source, tag)

    def barrier(self, opts: Any = None) -> Any:
        _refuse_capture("barrier")
        return self.gloo.barrier()

    def size(self) -> int:
        return int(self.gloo.size())

    def rank(self) -> int:
        return int(self.gloo.rank())

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND

    def getGroupName(self) -> str:  # noqa: N802
        return self._group_name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._group_name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._group_description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._group_description = description

    def abort(self) -> None:
        """Nothing is under way that could be aborted."""

    def shutdown(self) -> None:
        """gloo closes with the group."""

    def get_hccl_comm_name(self, rank: int, init_comm: bool = True) -> str:
        return f"emulated:{self._group_name}:{rank}"

    def _get_backend(self, device: torch.device) -> Any:
        return self


@device_call("hccl:alltoall")
def _exchange(group: ProcessGroupHccl, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
    rank = group.rank()
    _host(outputs)[rank].copy_(_host(inputs)[rank])
    others = [other for other in range(group.size()) if other != rank]
    work = [group.gloo.recv([_host(outputs[other])], other, 0) for other in others]
    work += [group.gloo.send([_host(inputs[other])], other, 0) for other in others]
    for item in work:
        item.wait()
    return _finished(outputs)


def _finished(result: Any) -> Any:
    """A piece of work that is over; those of gloo's point-to-point calls can be waited for only once."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _refuse_capture(what: str) -> None:
    if recording_graph() is not None:
        raise NotImplementedError(f"hccl {what} during graph capture is not emulated")


def install() -> None:
    """Register the backend."""
    dist.is_hccl_available = lambda: True  # type: ignore[attr-defined]
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, ProcessGroupHccl, devices=["npu"])
