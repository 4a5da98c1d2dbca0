"""What a run reads before it starts and leaves behind: the state file, the trace, the profile's identity."""

from __future__ import annotations

import json
import logging
from typing import Any

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.host.gamma_loop import GammaLoop
from vllm_hust_vspec.host.identity import Identity, check_measured_on, identity_of
from vllm_hust_vspec.host.keeper import Keeper
from vllm_hust_vspec.host.state_file import StateFile, default_path
from vllm_hust_vspec.host.trace import Trace
from vllm_hust_vspec.settings import AdaptiveSettings
from vllm_hust_vspec.settings.profile_file import read_profile

logger = logging.getLogger("vllm.vspec")


def attach(loop: GammaLoop, vllm_config: Any, adaptive: AdaptiveSettings) -> None:
    """Give a loop its memory and its trace, as the options say.

    Raises UserError for a profile measured on something else, and for a trace that cannot be written.
    """
    if loop.policy == "fixed" and adaptive.trace is None:
        return
    try:
        identity = identity_of(vllm_config, method=loop.method, max_gamma=loop.max_gamma, policy=loop.policy)
    except Exception:
        logger.exception("vspec: this server cannot be told from others, so nothing is remembered between runs")
        adaptive, identity = adaptive.model_copy(update={"memory": False}), {}
    if loop.policy == "profile" and adaptive.profile is not None:
        warning = check_measured_on(read_profile(adaptive.profile), adaptive.profile, identity)
        if warning is not None:
            logger.warning("vspec: %s", warning)
    if adaptive.trace is not None:
        loop.trace = Trace(adaptive.trace, header_of(loop, adaptive, identity))
    if adaptive.memory and loop.policy != "fixed":
        loop.remember(Keeper(StateFile(adaptive.state_file or default_path(), identity)))


def header_of(loop: GammaLoop, adaptive: AdaptiveSettings, identity: Identity) -> dict[str, Any]:
    """A trace's first line: which run it is of."""
    return {
        "vspec": __version__,
        "method": loop.method,
        "policy": loop.policy,
        "max_gamma": loop.max_gamma,
        "token_budget": loop.token_budget,
        "settings": json.loads(adaptive.model_dump_json()),
        "identity": identity,
    }
