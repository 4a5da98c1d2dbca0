"""Collectives between two processes, one device each, eager and captured."""

import os
import socket
import subprocess
import sys

import pytest

RANKS = 2

PROGRAM = """
import sys
import torch, torch.distributed as dist

rank, port = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.npu.set_device(rank)
dist.init_process_group("hccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
device = torch.device(f"npu:{rank}")
mine = torch.full((2,), rank + 1.0, device=device)
assert dist.get_backend() == "hccl" and mine.device.index == rank


def check(name, got, expected):
    got = got.tolist() if isinstance(got, torch.Tensor) else got
    assert got == expected, f"{name} on rank {rank}: {got}, expected {expected}"


for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
    x = mine.to(dtype, copy=True)
    dist.all_reduce(x)
    check(f"all_reduce {dtype}", x, [3, 3])
x = mine.clone()
dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True).wait()
check("all_reduce max", x, [2, 2])

x = mine.clone()
dist.broadcast(x, src=1)
check("broadcast", x, [2, 2])

parts = [torch.empty(2, device=device) for _ in range(2)]
dist.all_gather(parts, mine)
check("all_gather", torch.stack(parts), [[1, 1], [2, 2]])
whole = torch.empty(4, device=device)
dist.all_gather_into_tensor(whole, mine)
check("all_gather_into_tensor", whole, [1, 1, 2, 2])

half = torch.empty(2, device=device)
dist.reduce_scatter_tensor(half, torch.arange(4.0, device=device) * (rank + 1))
check("reduce_scatter_tensor", half, [[0, 3], [6, 9]][rank])
dist.reduce_scatter(half, [mine, mine * 10])
check("reduce_scatter", half, [[3, 3], [30, 30]][rank])

out = torch.empty(2, device=device)
dist.all_to_all_single(out, torch.tensor([10.0 * rank, 10.0 * rank + 1], device=device))
check("all_to_all_single", out, [[0, 10], [1, 11]][rank])
out = torch.empty(3, device=device)
send = [[1, 2], [2, 1]][rank]
receive = [[1, 2], [2, 1]][rank]
dist.all_to_all_single(out, torch.arange(3.0, device=device) + 10 * rank, receive, send)
check("all_to_all_single, uneven", out, [[0, 10, 11], [1, 2, 12]][rank])
outs = [torch.empty(1, device=device) for _ in range(2)]
dist.all_to_all(outs, [torch.tensor([10.0 * rank + i], device=device) for i in range(2)])
check("all_to_all", torch.cat(outs), [[0, 10], [1, 11]][rank])

gathered = [torch.empty(2, device=device) for _ in range(2)] if rank == 0 else None
dist.gather(mine, gathered, dst=0)
if rank == 0:
    check("gather", torch.stack(gathered), [[1, 1], [2, 2]])
x = mine.clone()
dist.reduce(x, dst=0)
if rank == 0:
    check("reduce", x, [3, 3])
scattered = torch.empty(2, device=device)
dist.scatter(scattered, [mine, mine * 5] if rank == 0 else None, src=0)
check("scatter", scattered, [[1, 1], [5, 5]][rank])

other = torch.empty(2, device=device)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]):
    work.wait()
check("batch_isend_irecv", other, [2.0 - rank] * 2)
if rank == 0:
    dist.send(mine, 1)
else:
    dist.recv(other, 0)
    check("recv", other, [1, 1])

objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
check("all_gather_object", objects, [{"rank": 0}, {"rank": 1}])
objects = [{"from": rank}]
dist.broadcast_object_list(objects, src=1, device=device)
check("broadcast_object_list", objects, [{"from": 1}])

group = dist.new_group([0, 1], backend="hccl")
x = mine.clone()
dist.all_reduce(x, group=group)
check("all_reduce of a new group", x, [3, 3])

x = torch.zeros(2, device=device)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    y = x * 2
    dist.all_reduce(y)
    z = y + 1
assert "hccl:allreduce" in graph.operations(), graph.operations()
for value in (1.0, 2.0):
    x.fill_(value + rank)
    graph.replay()
    check("captured all_reduce", z, [2 * (2 * value + 1) + 1] * 2)

dist.barrier()
dist.destroy_process_group()
print("ok")
"""


@pytest.fixture(scope="module")
def outputs() -> list[subprocess.CompletedProcess[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"TORCH_NPU_EMULATOR_DEVICES": str(RANKS), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), port],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    done = []
    try:
        for process in processes:
            out, error = process.communicate(timeout=120)
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    finally:
        for process in processes:
            process.kill()
    return done


@pytest.mark.parametrize("rank", range(RANKS))
def test_every_collective_gives_each_rank_its_part(outputs, rank):
    assert outputs[rank].stdout.split()[-1:] == ["ok"], outputs[rank].stderr[-3000:]
