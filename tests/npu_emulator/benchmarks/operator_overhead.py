"""What the way through the emulated device costs: time of an operator on tiny `npu` tensors less that on host tensors.

Run inside the emulated environment: python tests/npu_emulator/benchmarks/operator_overhead.py
"""

import timeit
from collections.abc import Callable

import torch

import torch_npu  # noqa: F401

REPEATS, ROUNDS = 2000, 7

Case = Callable[[], object]


def cases(device: str) -> dict[str, Case]:
    """Operators on tensors so small that nothing but the call itself takes time."""
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
    index = torch.zeros(2, dtype=torch.long, device=device)
    bias = torch.ones(4, device=device)
    return {
        "add": lambda: a + b,
        "add_ (in place)": lambda: a.add_(b),
        "mul by a number": lambda: a * 2.0,
        "mm": lambda: a @ b,
        "linear": lambda: torch.nn.functional.linear(a, b, bias),
        "cat of 4": lambda: torch.cat((a, b, a, b)),
        "index_select": lambda: a.index_select(0, index),
        "a[index]": lambda: a[index],
        "sum": lambda: a.sum(),
        "layer_norm": lambda: torch.nn.functional.layer_norm(a, (4,)),
        "topk (2 results)": lambda: a.topk(2),
        "copy_": lambda: a.copy_(b),
        "zeros": lambda: torch.zeros(4, device=device),
        "view": lambda: a.view(16),
        "uniform_": lambda: a.uniform_(),
    }


def microseconds(case: Case) -> float:
    """Best of several rounds, per call."""
    case()
    return min(timeit.repeat(case, number=REPEATS, repeat=ROUNDS)) / REPEATS * 1e6


def captured_microseconds() -> float:
    """One node of a replay."""
    x, y = torch.ones(4, 4, device="npu"), torch.ones(4, 4, device="npu")
    graph, nodes = torch.npu.NPUGraph(), 1000
    with torch.npu.graph(graph):
        for _ in range(nodes):
            x.add_(y)
    return min(timeit.repeat(graph.replay, number=1, repeat=ROUNDS)) / nodes * 1e6


def main() -> None:
    torch.set_num_threads(1)
    with torch.inference_mode():
        host, npu = cases("cpu"), cases("npu")
        overheads = []
        print(f"{'operator':<20}{'host µs':>10}{'npu µs':>10}{'overhead':>10}")
        for name in host:
            on_host, on_npu = microseconds(host[name]), microseconds(npu[name])
            overheads.append(on_npu - on_host)
            print(f"{name:<20}{on_host:>10.2f}{on_npu:>10.2f}{on_npu - on_host:>10.2f}")
        mean = sum(overheads) / len(overheads)
        print(f"overhead at most {max(overheads):.2f} µs (wanted: under 10), {mean:.2f} µs on average")
        print(f"replay of a captured add_: {captured_microseconds():.2f} µs an operator")


if __name__ == "__main__":
    main()
