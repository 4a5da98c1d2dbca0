"""Filters on logits against a loop over rows."""

import pytest
import torch

import torch_npu


def kept(row: torch.Tensor, k: int | None, p: float | None) -> set[int]:
    order = sorted(range(len(row)), key=lambda i: -row[i].item())
    if k is not None:
        threshold = row[order[min(max(k, 1), len(row)) - 1]]
        order = [i for i in order if row[i] >= threshold]
    if p is not None:
        chances, total, chosen = row[order].softmax(0), 0.0, []
        for i, chance in zip(order, chances.tolist(), strict=True):
            if chosen and total >= p:
                break
            chosen.append(i)
            total += chance
        order = chosen
    return set(order)


@pytest.mark.parametrize("k", [None, [1, 3, 40, 64]])
@pytest.mark.parametrize("p", [None, [0.1, 0.5, 0.95, 1.0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_survivors_are_the_same_and_unchanged(k: list[int] | None, p: list[float] | None, dtype: torch.dtype) -> None:
    logits = (
        torch.stack([torch.randperm(64, generator=torch.Generator().manual_seed(i)) for i in range(4)]).to(dtype) / 8
    )
    result = torch_npu.npu_top_k_top_p(
        logits.npu(),
        p=None if p is None else torch.tensor(p).to(dtype).npu(),
        k=None if k is None else torch.tensor(k, dtype=torch.int32).npu(),
    ).cpu()
    for row in range(4):
        survivors = kept(logits[row].float(), k[row] if k else None, p[row] if p else None)
        assert set(result[row].isfinite().nonzero().flatten().tolist()) == survivors
        assert torch.equal(result[row][sorted(survivors)], logits[row][sorted(survivors)])


def test_the_largest_always_stays() -> None:
    result = torch_npu.npu_top_k_top_p(
        torch.tensor([[1.0, 5.0, 2.0]]).npu(), p=torch.tensor([0.0]).npu(), k=torch.tensor([1], dtype=torch.int32).npu()
    )
    assert result.cpu().tolist() == [[float("-inf"), 5.0, float("-inf")]]
