"""Decides how many tokens the drafter proposes at each step. Pure Python and numpy: neither torch nor vLLM."""

from typing import TYPE_CHECKING

from vllm_hust_vspec.control.bounds import Bounds
from vllm_hust_vspec.control.contract import (
    REASONS,
    Decision,
    GammaController,
    Reason,
    StepContext,
    StepOutcome,
)
from vllm_hust_vspec.control.fixed import FixedController
from vllm_hust_vspec.errors import UserError

if TYPE_CHECKING:
    from vllm_hust_vspec.settings import AdaptiveSettings

__all__ = [
    "REASONS",
    "Decision",
    "GammaController",
    "Reason",
    "StepContext",
    "StepOutcome",
    "make_controller",
]


def make_controller(settings: "AdaptiveSettings", *, max_gamma: int, seed: int = 0) -> GammaController:
    """The controller that the settings ask for, choosing gamma from min_gamma (None = 0) to max_gamma.

    seed: spreads the probes of several engines; it never makes a run differ from another with the same seed.
    Raises UserError for bounds that leave no gamma, and for a profile file that is missing, bad or too small.
    """
    if max_gamma < 0:
        raise UserError(f"gamma {max_gamma} is below 0; set --gamma to 0 or more")
    min_gamma = 0 if settings.min_gamma is None else settings.min_gamma
    if not 0 <= min_gamma <= max_gamma:
        raise UserError(f"adaptive_min_gamma {min_gamma} is outside 0..{max_gamma}; set --adaptive-min-gamma within it")
    bounds = Bounds(min_gamma, max_gamma)
    if settings.policy == "fixed" or settings.speculation is False:
        return FixedController(bounds)
    if settings.policy == "profile":
        return _profile_controller(settings, bounds)
    if settings.policy != "online":
        raise UserError(f"adaptive_policy {settings.policy!r} is unknown; use online, profile or fixed")
    from vllm_hust_vspec.control.online import OnlineController
    from vllm_hust_vspec.control.tuning import Tuning

    return OnlineController(bounds, Tuning.of(settings), seed)


def _profile_controller(settings: "AdaptiveSettings", bounds: Bounds) -> GammaController:
    from vllm_hust_vspec.control.profile import ProfileController
    from vllm_hust_vspec.control.tuning import ProfileTuning
    from vllm_hust_vspec.settings.profile_file import read_profile

    if settings.profile is None:
        raise UserError("adaptive_policy profile needs --adaptive-profile; name a profile file")
    profile = read_profile(settings.profile)
    if bounds.max_gamma > profile.max_speculative_tokens:
        raise UserError(
            f"--adaptive-profile {settings.profile}: measured up to max_speculative_tokens "
            f"{profile.max_speculative_tokens}, below gamma {bounds.max_gamma}; set --gamma within it, or measure again"
        )
    return ProfileController(bounds, profile, ProfileTuning.of(settings))
