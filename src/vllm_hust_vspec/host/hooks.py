"""The two stages: hooks that register() installs, and what they do once a process has its configuration."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.errors import VSpecError, fail
from vllm_hust_vspec.host import ascend
from vllm_hust_vspec.host.accept.rules import notice, rule_for
from vllm_hust_vspec.host.registry import Facts, Role
from vllm_hust_vspec.host.requirements import resolve
from vllm_hust_vspec.host.scheduler import adaptive_class
from vllm_hust_vspec.host.scope import Scope, scope_of
from vllm_hust_vspec.host.steering import remove_at_exit
from vllm_hust_vspec.settings import Settings

logger = logging.getLogger("vllm.vspec")

# The engine's scheduler configuration, with the scope found for it: the scheduler class is asked of that object alone,
# without the rest of the configuration.
_engine: tuple[Any, Scope] | None = None
_logged: dict[str, tuple[str, str]] = {}


@functools.cache
def settings() -> Settings:
    """The options of this process, read from its environment once.

    Raises UserError for an option that this version only declares: it must not look as if it worked.
    """
    found = Settings.from_environment(os.environ)
    found.require_built()
    return found


def register_stage() -> None:
    """Install the hooks of the register stage."""
    from vllm_hust_vspec.host.patches import REGISTRY

    ascend.apply_host_patches_first()
    REGISTRY.apply(REGISTRY.select("register", Facts(settings())))


def has_dynamic_graph_rule(facts: Facts) -> bool:
    found, _ = resolve("vllm.config.vllm:VllmConfig._maybe_override_dynamic_sd_cudagraph_mode")
    return found is not None


def configure_front_end(original: Callable[..., None], vllm_config: Any, *args: Any, **kwargs: Any) -> None:
    original(vllm_config, *args, **kwargs)
    if vllm_config.model_config is None:
        return  # a default configuration that vLLM makes for its own use
    scope = _or_end(lambda: scope_of(vllm_config, settings()))
    if scope.kind == "adaptive":
        ascend.keep_draft_model_eager(vllm_config)
    rule = _or_end(lambda: rule_for(vllm_config, settings()))
    if _logged:
        return  # an engine process may rebuild its configuration; it logs as what it is
    _log_ledger("front end", scope.line)
    if line := notice(rule):
        logger.warning("vspec: %s", line)
    path = settings().serve.steering_socket
    if path is not None:
        remove_at_exit(os.fspath(path))


def configure_engine(original: Callable[..., None], executor: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
    global _engine
    scope = _or_end(lambda: scope_of(vllm_config, settings()))
    _engine = (vllm_config.scheduler_config, scope)
    _configured("engine", vllm_config, scope.line)
    original(executor, vllm_config, *args, **kwargs)


def configure_worker(original: Callable[..., None], worker: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
    _configured("worker", vllm_config, "obeys the engine's gamma")
    original(worker, vllm_config, *args, **kwargs)


def extend_scheduler(original: Callable[..., type], scheduler_config: Any) -> type:
    resolved = original(scheduler_config)
    if _engine is None or _engine[0] is not scheduler_config or _engine[1].kind != "adaptive":
        return resolved
    return adaptive_class(resolved, _engine[1], settings())


def prefer_piecewise(original: Callable[..., None], vllm_config: Any) -> None:
    original(vllm_config)
    from vllm.config import CUDAGraphMode
    from vllm.platforms import current_platform

    compilation = vllm_config.compilation_config
    if not current_platform.is_cuda_alike() or not compilation.cudagraph_mode.has_full_cudagraphs():
        return
    if scope_of(vllm_config, settings()).kind == "adaptive":
        logger.warning(
            "vspec: gamma changes the width of verification, so graphs become PIECEWISE instead of %s",
            compilation.cudagraph_mode.name,
        )
        compilation.cudagraph_mode = CUDAGraphMode.PIECEWISE


def _configured(role: Role, vllm_config: Any, line: str) -> None:
    """Apply the patches of the configured stage in this process and log its ledger line."""
    from vllm_hust_vspec.host.patches import REGISTRY

    facts = Facts(settings(), role, vllm_config)
    selected = REGISTRY.select("configured", facts)
    _or_end(lambda: REGISTRY.apply(selected))
    _log_ledger(role, line)


def _log_ledger(role: str, line: str) -> None:
    """One line on what is effective in this process; repeated only when it changes."""
    import vllm

    from vllm_hust_vspec.host.patches import REGISTRY

    patches = ", ".join(REGISTRY.applied) or "none"
    if _logged.get(role) == (line, patches):
        return
    _logged[role] = (line, patches)
    logger.info(
        "vspec %s %s, pid %d: %s; patches: %s; vLLM %s",
        __version__,
        role,
        os.getpid(),
        line,
        patches,
        getattr(vllm, "__version__", "of unknown version"),
    )


def _or_end(step: Callable[[], Any]) -> Any:
    """Run a step; a fault of the host or of an option ends the process with its one line."""
    try:
        return step()
    except VSpecError as error:
        fail(str(error))
