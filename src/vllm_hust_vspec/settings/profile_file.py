"""The profile file of `--adaptive-profile`: measured times of target and drafter (docs/adaptive.md)."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vllm_hust_vspec.errors import UserError

MOST_BYTES = 1 << 20
MOST_GAMMA = 64

Milliseconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Gamma = Annotated[int, Field(ge=0, le=MOST_GAMMA)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ForwardTime(_Table):
    """One forward pass: alpha * tokens in KV + gamma * tokens in the batch + delta, in ms."""

    alpha_ms_per_context_token: Milliseconds
    gamma_ms_per_batched_token: Milliseconds
    delta_ms: Milliseconds

    def ms(self, context: float, tokens: float) -> float:
        return self.alpha_ms_per_context_token * context + self.gamma_ms_per_batched_token * tokens + self.delta_ms


class MeasuredOn(_Table):
    """What a profile was measured with; what is left out is not compared."""

    source: str | None = None
    target: str | None = None
    drafter: str | None = None
    dtype: str | None = None
    host: str | None = None
    device: str | None = None
    tensor_parallel_size: Annotated[int, Field(ge=1)] | None = None


class ProfileFile(_Table):
    """The content of a profile file. Keys of the two tables are whole numbers, written as JSON texts."""

    schema_version: Literal[1]
    max_speculative_tokens: Annotated[int, Field(ge=1, le=MOST_GAMMA)]
    target: ForwardTime
    draft: ForwardTime
    initial_gamma: Gamma | None = None
    default_acceptance_rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.7
    draft_parallel: bool = False
    per_gamma_overhead_ms: dict[Gamma, Milliseconds] = Field(default_factory=dict)
    batch_gamma_policy: dict[Annotated[int, Field(ge=1)], Gamma] = Field(default_factory=dict)
    measured_on: MeasuredOn | None = None

    @model_validator(mode="after")
    def _within_its_own_gamma(self) -> Self:
        most = self.max_speculative_tokens
        named = {
            "initial_gamma": [] if self.initial_gamma is None else [self.initial_gamma],
            "per_gamma_overhead_ms": list(self.per_gamma_overhead_ms),
            "batch_gamma_policy": list(self.batch_gamma_policy.values()),
        }
        for key, gammas in named.items():
            if any(gamma > most for gamma in gammas):
                raise ValueError(f"{key} names gamma {max(gammas)}, above max_speculative_tokens {most}")
        if self.target.gamma_ms_per_batched_token == 0 and self.target.delta_ms == 0:
            raise ValueError("target takes no time: gamma_ms_per_batched_token and delta_ms are 0")
        return self


def read_profile(path: Path) -> ProfileFile:
    """The profile in a file. Raises UserError, one line that names file, key and fix."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"--adaptive-profile {path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise UserError(f"--adaptive-profile {path}: larger than {MOST_BYTES} bytes; name a profile file")
    try:
        return ProfileFile.model_validate_json(content)
    except ValidationError as error:
        raise UserError(f"--adaptive-profile {path}: {_first(error.errors()[0])}; see docs/adaptive.md") from None


def _first(fault: Any) -> str:
    """A fault that pydantic found, in a few words."""
    key = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    given = repr(fault["input"])
    given = given if len(given) <= 40 else given[:37] + "..."
    match fault["type"]:
        case "json_invalid":
            return f"not valid JSON: {fault['ctx']['error']}"
        case "extra_forbidden":
            return f"unknown key {_plain(key)}"
        case "missing":
            return f"{_plain(key)} is missing"
        case "value_error":
            return str(fault["ctx"]["error"])
        case _:
            what = fault["msg"].removeprefix("Input should be ")
            return f"{_plain(key) or 'the file'} is {_plain(given)}, and should be {what}"


def _plain(text: str) -> str:
    """The text on one line, without what a terminal would act on."""
    text = "".join(mark if mark.isprintable() else "?" for mark in text)
    return text if len(text) <= 80 else text[:77] + "..."
