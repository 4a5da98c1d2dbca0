"""Which drafter a run uses."""

from collections.abc import Mapping

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import Settings
from vllm_hust_vspec.settings.catalog import LEGACY_PREFIXES, PREFIX
from vllm_hust_vspec.settings.sources import Rank

VARIABLES = {"draft": "DRAFT_MODEL", "eagle": "EAGLE_MODEL", "eagle3": "EAGLE_MODEL"}


def drafter(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The drafter: the flag, else the variable of the method, else the file; None for a method that has none.

    Raises UserError where the method needs a drafter and nothing names one.
    """
    method = settings.serve.method
    if method not in VARIABLES:
        return None
    given = settings.given.get("draft_model")
    named = _from_variable(method, environ)
    if named is not None and (given is None or given.rank < Rank.FLAG):
        return named
    if settings.serve.draft_model is None:
        raise UserError(f"method {method} has no drafter; give --draft-model or set {PREFIX}{VARIABLES[method]}")
    return settings.serve.draft_model


def _from_variable(method: str, environ: Mapping[str, str]) -> str | None:
    for prefix in (PREFIX, *LEGACY_PREFIXES):
        variable = prefix + VARIABLES[method]
        if variable in environ:
            if not environ[variable].strip():
                raise UserError(f"{variable}= is empty; name a model or unset it")
            return environ[variable].strip()
    return None
