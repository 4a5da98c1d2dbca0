"""Options become the acceptance rule of a server, or one line that says why they cannot."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host.accept.protected import protected_tokens
from vllm_hust_vspec.host.accept.rules import AmongBest, Strict, WithinMargin, notice, relaxes, rule_for
from vllm_hust_vspec.settings import Settings

VOCABULARY = 1000


def server(method: str | None = "draft_model", **changes: Any) -> Any:
    parallel = {
        name: changes.pop(name)
        for name in ("prefill_context_parallel_size", "decode_context_parallel_size")
        if name in changes
    }
    config: dict[str, Any] = {
        "speculative_config": Thing(method=method, num_speculative_tokens=4) if method else None,
        "model_config": Thing(get_vocab_size=lambda: VOCABULARY),
        "parallel_config": Thing(**parallel),
        "use_v2_model_runner": False,
        "additional_config": {},
    }
    return Thing(**(config | changes))


def given(**options: str) -> Settings:
    return Settings.from_environment({f"HUST_VSPEC_{name.upper()}": value for name, value in options.items()})


MARGIN = {"confidence_accept_margin": "2.5"}
TOPK = {"eagle_relaxed_accept_topk": "3"}


@pytest.mark.parametrize("method", ["draft_model", "eagle", "ngram", None])
def test_acceptance_is_strict_unless_asked(method: str | None) -> None:
    assert rule_for(server(method), given()) == Strict()
    assert not relaxes(given())
    assert rule_for(server("eagle"), given(eagle_relaxed_accept_topk="1")) == Strict()


def test_options_make_the_rule() -> None:
    assert rule_for(server("eagle"), given(**TOPK, eagle_relaxed_accept_after_tokens="9")) == AmongBest(3, 9)
    assert rule_for(server("eagle3"), given(**TOPK)) == AmongBest(3, 0)
    assert rule_for(server(), given(**MARGIN)) == WithinMargin(2.5, 0, 0, ())
    options = {
        "confidence_accept_margin": "0",
        "confidence_accept_from_position": "1",
        "confidence_accept_after_tokens": "7",
        "confidence_protected_token_ids": "5,999",
    }
    assert rule_for(server(), given(**options)) == WithinMargin(0.0, 1, 7, (5, 999))
    assert relaxes(given(**options))


def test_a_server_without_speculation_has_nothing_to_accept() -> None:
    assert rule_for(server(None), given(**MARGIN)) == Strict()


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        (
            server("eagle"),
            {"eagle_relaxed_accept_topk": "1001"},
            "HUST_VSPEC_EAGLE_RELAXED_ACCEPT_TOPK=1001 exceeds the target's vocabulary of 1000 tokens; "
            "set it to 1..1000",
        ),
        (
            server(),
            {**MARGIN, "confidence_protected_token_ids": "3,1000"},
            "HUST_VSPEC_CONFIDENCE_PROTECTED_TOKEN_IDS=3,1000 names token 1000, and the target's vocabulary ends at "
            "999; leave it out",
        ),
        (server("eagle"), MARGIN, "it belongs to method draft"),
        (server("draft_model"), TOPK, "it belongs to method eagle or eagle3"),
        (server("ngram"), TOPK, "it belongs to method eagle or eagle3"),
        (server(use_v2_model_runner=True), MARGIN, "VLLM_USE_V2_MODEL_RUNNER=0"),
        (server(prefill_context_parallel_size=2), MARGIN, "context parallelism"),
        (server("eagle", decode_context_parallel_size=2), TOPK, "context parallelism"),
        (server("eagle", additional_config={"enable_reduce_sample": True}), TOPK, "enable_reduce_sample"),
    ],
)
def test_what_cannot_work_is_one_line(config: Any, options: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as error:
        rule_for(config, given(**options))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"confidence_accept_margin": "-0.5"}, "ACCEPT_MARGIN=-0.5 is out of range; set it to 0 or more"),
        ({"confidence_accept_margin": "inf"}, "is not a number"),
        ({"eagle_relaxed_accept_topk": "0"}, "RELAXED_ACCEPT_TOPK=0 is out of range; set it to 1 or more"),
        ({**MARGIN, "confidence_protected_token_ids": "-1"}, "PROTECTED_TOKEN_IDS=-1 is out of range"),
    ],
)
def test_bad_values_end_before_any_server(options: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as error:
        given(**options)
    assert says in str(error.value)


def test_a_relaxed_rule_says_what_it_accepts_and_that_it_is_not_lossless() -> None:
    assert notice(Strict()) is None
    assert notice(AmongBest(3, 16)) == (
        "not lossless: a draft among the target's best 3 tokens is accepted, after 16 generated tokens; "
        "greedy answers differ from those without speculation"
    )
    line = notice(WithinMargin(5.25, 1, 0, ()))
    assert line is not None
    assert "at most 5.25 below the target's best logit is accepted, from draft position 1 on;" in line


def model(*, eos: Any = 2, generation: Any = None, skip: bool = True) -> Any:
    return Thing(
        hf_text_config=Thing(eos_token_id=eos),
        try_get_generation_config=lambda: {} if generation is None else {"eos_token_id": generation},
        skip_tokenizer_init=skip,
    )


def test_tokens_that_end_a_sequence_are_protected_wherever_they_are_named() -> None:
    assert protected_tokens(model(), ()) == [2]
    assert protected_tokens(model(eos=[5, 3], generation=[9]), (7, 3)) == [3, 5, 7, 9]
    assert protected_tokens(model(eos=None, generation=4), (8,)) == [4, 8]


def test_special_tokens_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Thing(
        all_special_ids=[0, 1],
        added_tokens_decoder={0: Thing(special=True), 11: Thing(special=True), 12: Thing(special=False)},
    )
    monkeypatch.setattr("vllm_hust_vspec.host.accept.protected._tokenizer", lambda model_config: tokenizer)
    assert protected_tokens(model(skip=False), (40,)) == [0, 1, 2, 11, 40]
