"""Checks that take more than one option: contradictions, and options without effect in the chosen mode."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings.catalog import OPTIONS, Spec
from vllm_hust_vspec.settings.sources import Given, Rank


@dataclass(frozen=True, slots=True)
class Choices:
    """Every option's value in force, and those that a source gave."""

    values: Mapping[str, Any]
    given: Mapping[str, Given]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def source(self, key: str) -> Given:
        """The value in force with its source; the default where no source gave one."""
        found = self.given.get(key)
        return replace(found, value=self.values[key]) if found else Given(self.values[key], Rank.DEFAULT)

    def rank(self, key: str) -> Rank:
        return self.source(key).rank

    def yields(self, idle: "Idle") -> bool:
        """Whether an option without effect is the file's, and a flag or variable took its effect away."""
        return self.rank(idle.key) is Rank.FILE and self.rank(idle.because) > Rank.FILE

    def borrows_drafter(self, file: Mapping[str, Given]) -> bool:
        """Whether the drafter in force is the file's, while the method in force is not the file's."""
        drafter, method = self.given.get("draft_model"), file.get("method")
        return (
            drafter is not None and drafter.rank is Rank.FILE and method is not None and method.value != self["method"]
        )

    def named(self, key: str) -> str:
        return self.given[key].named(OPTIONS[key])

    def cited(self, key: str) -> str:
        return self.source(key).cited(OPTIONS[key])


@dataclass(frozen=True, slots=True)
class Idle:
    """A given option without effect: the option that makes it so, and what would give it effect."""

    key: str
    because: str
    fix: str


def idle_options(choices: Choices) -> Iterator[Idle]:
    """Given options that do nothing in the chosen method, policy and graph mode."""
    for key, given in choices.given.items():
        found = None if given.derived else _idle(choices, OPTIONS[key])
        if found is not None:
            yield found


def _idle(choices: Choices, spec: Spec) -> Idle | None:
    facts = spec.facts
    if spec.is_off(choices[spec.key]):
        return None  # switching off what is not there misses nothing
    method, policy = choices["method"], choices["adaptive_policy"]
    if facts.methods and method is not None and method not in facts.methods:
        return Idle(spec.key, "method", f"it belongs to method {_or(facts.methods)}")
    if (facts.policies or facts.adaptive) and not choices["adaptive_speculation"]:
        return Idle(spec.key, "adaptive_speculation", "switch --adaptive-speculation on")
    if facts.policies and policy not in facts.policies:
        return Idle(spec.key, "adaptive_policy", f"it belongs to policy {_or(facts.policies)}")
    if facts.graph_modes and choices["graph_mode"] not in facts.graph_modes:
        return Idle(spec.key, "graph_mode", f"it belongs to --graph-mode {_or(facts.graph_modes)}")
    for needed in facts.needs:
        if OPTIONS[needed].is_off(choices[needed]):
            return Idle(spec.key, needed, f"it needs {OPTIONS[needed].flag}")
    return None


def refuse_idle(choices: Choices, idle: Idle) -> None:
    """End on an option without effect, naming what makes it so."""
    raise UserError(
        f"{choices.named(idle.key)} has no effect with {choices.cited(idle.because)}; {idle.fix}, or leave it out"
    )


def check(choices: Choices) -> None:
    """End on the first contradiction between two options."""
    gamma = choices["gamma"]
    _at_most(choices, "adaptive_min_gamma", "gamma", low=0)
    _at_most(choices, "ngram_min", "ngram_max", low=1)
    if choices["draft_tensor_parallel_size"] not in (1, choices["tensor_parallel_size"]):
        raise UserError(
            f"{choices.named('draft_tensor_parallel_size')} does not fit {choices.cited('tensor_parallel_size')}; "
            f"set it to {' or '.join(map(str, sorted({1, choices['tensor_parallel_size']})))}"
        )
    if choices["max_num_batched_tokens"] < gamma + 1:
        _refuse_pair(
            choices, "gamma", "max_num_batched_tokens", f"set it to 1..{choices['max_num_batched_tokens'] - 1}"
        )
    if choices["max_num_batched_tokens"] < choices["max_num_seqs"]:
        _refuse_pair(
            choices, "max_num_seqs", "max_num_batched_tokens", f"set it to 1..{choices['max_num_batched_tokens']}"
        )
    if not choices["chunked_prefill"] and choices["max_num_batched_tokens"] < choices["max_model_len"]:
        raise UserError(
            f"{choices.named('chunked_prefill')} needs --max-num-batched-tokens of at least "
            f"{choices.cited('max_model_len')}, and has {choices.cited('max_num_batched_tokens')}; raise it"
        )
    if (
        choices["adaptive_policy"] == "profile"
        and choices["adaptive_profile"] is None
        and choices["adaptive_speculation"]
    ):
        raise UserError(f"{choices.named('adaptive_policy')} needs --adaptive-profile; name a profile file")
    if "eagle_draft_active_vocab_size" in choices.given and "eagle_draft_active_vocab_ids" in choices.given:
        _refuse_pair(
            choices, "eagle_draft_active_vocab_size", "eagle_draft_active_vocab_ids", "give one of them", "contradicts"
        )
    if choices["device"] is not None:
        _check_devices(choices)


def _at_most(choices: Choices, key: str, limit: str, *, low: int) -> None:
    value, high = choices[key], choices[limit]
    if value is not None and value > high:
        if key in choices.given:
            raise UserError(f"{choices.named(key)} exceeds {choices.cited(limit)}; set it to {low}..{high}")
        raise UserError(f"{choices.named(limit)} is below {choices.cited(key)}; set it to {value} or more")


def _check_devices(choices: Choices) -> None:
    devices = choices["device"].split(",")
    if not all(device.strip().isdecimal() for device in devices) or len(set(devices)) < len(devices):
        raise UserError(f"{choices.named('device')} is not a list of devices; set it to ids such as 2 or 0,1")
    if len(devices) < choices["tensor_parallel_size"]:
        raise UserError(
            f"{choices.named('device')} names fewer devices than {choices.cited('tensor_parallel_size')}; "
            "name one for each"
        )


def _refuse_pair(choices: Choices, key: str, other: str, fix: str, verb: str = "exceeds") -> None:
    if key in choices.given:
        raise UserError(f"{choices.named(key)} {verb} {choices.cited(other)}; {fix}")
    least = choices[key] + 1 if key == "gamma" else choices[key]
    raise UserError(f"{choices.named(other)} is too small for {choices.cited(key)}; set it to {least} or more")


def _or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
