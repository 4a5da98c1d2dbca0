"""Hosts: what a step costs, which drafter there is, how late outcomes come. Frozen: controllers are judged on them.

A cost is milliseconds of (requests, verified tokens, drafter passes, prompt tokens, tokens in KV). Where a host is
fitted to published figures, `source` says which; the others have the shape that is usual of their kind.
"""

import math
from dataclasses import dataclass

from vllm_hust_vspec.simulate.engine import Cost, Noise
from vllm_hust_vspec.simulate.texts import Nature, Offers

LOOK_UP = Offers(0.35, 12.0)
USUAL_NOISE = Noise()
CPU_NOISE = Noise(0.05, 0.01, 1.5)


@dataclass(frozen=True, slots=True)
class Host:
    """offers: what a look-up drafter offers in the stationary cells, None = the drafter always offers."""

    name: str
    cost: Cost
    source: str
    offers: Offers | None = None
    lag: int = 1
    budget: int = 8192
    noise: Noise = USUAL_NOISE

    def nature(self, rates: str | tuple[float, ...]) -> Nature:
        """Texts of such acceptance, drafted by this host's drafter."""
        return Nature(rates, self.offers)


def _npu_target(v: int, p: int, c: int) -> float:
    return 29.2 + 0.076 * v + 0.074 * p + 4e-4 * c


def npu_draft(b: int, v: int, d: int, p: int, c: int) -> float:
    return _npu_target(v, p, c) + d * (2.13 + 0.0758 * b)


def npu_eagle(b: int, v: int, d: int, p: int, c: int) -> float:
    padded = 16 * math.ceil(v / 16)  # captured graphs
    return _npu_target(padded, p, c) + d * (1.68 + 0.0108 * b)


def npu_sync(b: int, v: int, d: int, p: int, c: int) -> float:
    return _npu_target(v, p, c) + d * 29.3


def gpu(b: int, v: int, d: int, p: int, c: int) -> float:
    width = v + p
    if width <= 4:
        captured, eager = width, 0.0
    else:
        captured, eager = 8 * math.ceil(width / 8), 5.0 if width > 512 else 0.0
    return max(9.0, 4.0 + 0.045 * captured) + eager + 0.01 * b + d * 0.9 + 3e-5 * c


def gpu_eagle(b: int, v: int, d: int, p: int, c: int) -> float:
    arithmetic = 0.042 * (v + p)
    target = float((9.5**4 + arithmetic**4) ** 0.25)
    return target + 0.015 * v + (2.7 if v > b else 0.0) + d * (1.9 + 0.004 * b) + 3e-5 * c


def moe(b: int, v: int, d: int, p: int, c: int) -> float:
    experts = 22.0 * (1.0 - math.exp(-v / 48.0))
    return 9.0 + experts + 0.03 * (v + p) + d * 1.6 + 5e-5 * c


def cpu_draft(b: int, v: int, d: int, p: int, c: int) -> float:
    return 12.0 + 1.6 * v + 0.2 * b + d * (1.5 + 0.2 * b) + 1.2 * p + 4e-4 * c


def cpu_ngram(b: int, v: int, d: int, p: int, c: int) -> float:
    return 11.0 + 1.25 * min(v, 8) + 0.95 * max(0, v - 8) + (1.5 if v > b else 0.0) + 0.55 * p + 4e-4 * c


def costly_drafter(b: int, v: int, d: int, p: int, c: int) -> float:
    return 20.0 + 0.04 * (v + p) + d * (6.5 + 0.02 * b)


FIGURES = "Qwen2.5-14B on one Ascend NPU, GSM8K, 200 prompts"
HOSTS = {
    host.name: host
    for host in (
        Host("npu-draft", npu_draft, f"{FIGURES}, batch 128: target only, draft model gamma 1..4; batch 16: target"),
        Host("npu-eagle", npu_eagle, f"{FIGURES}, batch 128: target only, EAGLE gamma 1 and 2"),
        Host("npu-sync", npu_sync, f"{FIGURES}, batch 16, synchronous: draft model gamma 5 at 0.50x", lag=0),
        Host("gpu", gpu, "shape only: memory bound, then arithmetic; graphs up to 512 tokens"),
        Host("gpu-eagle", gpu_eagle, "sgl-project/sglang#21599: steps of 1, 3 and 7 drafts against none"),
        Host("moe", moe, "shape only: more experts are read as a step widens, up to all"),
        Host("cpu-draft", cpu_draft, "shape only: arithmetic from the first token on", None, 0, 2048, CPU_NOISE),
        Host("cpu-ngram", cpu_ngram, "our demo: SmolLM2-135M on two cores, vLLM 0.32", LOOK_UP, 0, 2048, CPU_NOISE),
        Host("costly-drafter", costly_drafter, "shape only: a drafter a third as slow as its target"),
    )
}


def distorted(cost: Cost, factor: float) -> Cost:
    """The same host, but steps that draft or verify drafts seem to take `factor` times as long."""

    def seems(b: int, v: int, d: int, p: int, c: int) -> float:
        return cost(b, v, d, p, c) * (factor if d or v > b else 1.0)

    return seems
