"""Matrix products fused with a collective, on two ranks."""

import os
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing

import torch_npu


def on_rank(rank: int, store: str) -> None:
    torch.npu.set_device(rank)
    distributed.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=2)
    group = distributed.group.WORLD
    assert group is not None
    name = group._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    x = [torch.arange(8.0).view(4, 2) + 10 * other for other in range(2)]
    weight = [torch.arange(6.0).view(2, 3) - other for other in range(2)]
    bias = torch.tensor([1.0, 2.0, 3.0])
    total = x[0] @ weight[0] + x[1] @ weight[1] + bias
    mine = x[rank].npu(), weight[rank].npu()
    own_bias = bias.npu() if rank == 0 else None
    reduced = torch_npu.npu_mm_all_reduce_base(*mine, name, bias=own_bias)
    part = torch_npu.npu_mm_reduce_scatter_base(*mine, name, 2, reduce_op="sum", bias=own_bias, comm_turn=0)
    assert torch.equal(reduced.cpu(), total)
    assert torch.equal(part.cpu(), total[2 * rank : 2 * rank + 2])
    distributed.destroy_process_group()


def test_products_are_summed_over_the_ranks(tmp_path: Path) -> None:
    multiprocessing.spawn(on_rank, args=(os.fspath(tmp_path / "store"),), nprocs=2)


def test_other_reductions_and_quantised_products_are_refused() -> None:
    x = torch.ones(2, 2).npu()
    with pytest.raises(ValueError, match="reduce_op"):
        torch_npu.npu_mm_all_reduce_base(x, x, "emulated:0:0", reduce_op="max")
    with pytest.raises(NotImplementedError, match="npu_mm_all_reduce_base with dequant_scale is not emulated"):
        torch_npu.npu_mm_all_reduce_base(x, x, "emulated:0:0", dequant_scale=x)
