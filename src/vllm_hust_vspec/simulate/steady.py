"""What each gamma brings in the long run, from the true costs and acceptance: what no controller knows."""

from collections.abc import Sequence

from vllm_hust_vspec.simulate.hosts import Host
from vllm_hust_vspec.simulate.texts import Nature, expected_tokens

PROMPT, OUTPUT = 120, 160  # mean tokens of the requests in workload.py


def goodput(host: Host, batch: int, nature: Nature, gammas: Sequence[int]) -> list[float]:
    """Tokens/s at each gamma with so many requests at once, prefill included."""
    tokens = expected_tokens(nature, gammas)
    context = batch * (PROMPT + OUTPUT // 2)
    share = 1.0 if nature.offers is None else nature.offers.share
    out = []
    for gamma, each in zip(gammas, tokens, strict=True):
        prompts = round(batch * each * PROMPT / OUTPUT)
        none = (1.0 - share) ** batch if gamma else 1.0  # chance that nothing is offered
        ms = none * host.cost(batch, batch, gamma, prompts, context)
        if none < 1.0:
            width = round(batch * (1.0 + share * gamma / (1.0 - none)))
            ms += (1.0 - none) * host.cost(batch, width, gamma, prompts, context)
        out.append(1e3 * batch * each / ms)
    return out


def best_gamma(host: Host, batch: int, nature: Nature, max_gamma: int) -> int:
    rates = goodput(host, batch, nature, range(max_gamma + 1))
    return max(range(max_gamma + 1), key=rates.__getitem__)
