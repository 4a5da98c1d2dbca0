"""The options that the learning controllers honour, with their own choices where the user made none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from vllm_hust_vspec.settings import AdaptiveSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tuning:
    """acceptance_weight: weight that the newest BLOCK (or one batch, if larger) of verified drafts gets.
    memory: steps that are remembered, None = by acceptance_weight, and 48 steps of one kind for step times.
    interval: decisions between two changes. hysteresis: relative gain that a change needs, None = by uncertainty.
    step: largest change of gamma at once; upward 1 and downward any when None.
    exploration: steps lost to probing that are allowed per step. warmup: steps before a gamma is trusted.
    warmup_return: where a climb ends. calibrate, calibration_weight: the correction of predicted step times.
    """

    acceptance_weight: float = 0.1
    memory: int | None = None
    interval: int = 1
    hysteresis: float | None = None
    step: int | None = None
    exploration: float = 0.01
    warmup: int = 0
    warmup_return: Literal["best", "incumbent"] = "best"
    calibrate: bool = True
    calibration_weight: float = 0.2

    @classmethod
    def of(cls, settings: "AdaptiveSettings") -> "Tuning":
        """The tuning that the adaptive options ask for."""
        own = cls()
        return cls(
            acceptance_weight=settings.ewma_weight,
            memory=settings.online_window,
            interval=_or(settings.control_interval, own.interval),
            hysteresis=settings.hysteresis,
            step=settings.max_gamma_step,
            exploration=_or(settings.online_exploration, own.exploration),
            warmup=_or(settings.online_warmup_samples, own.warmup),
            warmup_return=_or(settings.online_warmup_return, own.warmup_return),
            calibrate=settings.latency_calibration,
            calibration_weight=settings.latency_ewma_weight,
        )


@dataclass(frozen=True, slots=True)
class ProfileTuning:
    """acceptance_weight: weight of the newest sample in the acceptance. min_observations: trials before it is trusted.
    interval: decisions between two changes. hysteresis: relative gain that a change needs. step: the largest one.
    calibrate, calibration_weight: the correction of predicted step times.
    """

    acceptance_weight: float = 0.1
    min_observations: int = 32
    interval: int = 4
    hysteresis: float = 0.05
    step: int = 1
    calibrate: bool = True
    calibration_weight: float = 0.2

    @classmethod
    def of(cls, settings: "AdaptiveSettings") -> "ProfileTuning":
        """The tuning that the adaptive options ask for."""
        own = cls()
        return cls(
            acceptance_weight=settings.ewma_weight,
            min_observations=settings.min_observations,
            interval=_or(settings.control_interval, own.interval),
            hysteresis=_or(settings.hysteresis, own.hysteresis),
            step=_or(settings.max_gamma_step, own.step),
            calibrate=settings.latency_calibration,
            calibration_weight=settings.latency_ewma_weight,
        )


def _or(value: T | None, own: T) -> T:
    return own if value is None else value
