"""Where values come from, in which order, and how a bad one is refused."""

from pathlib import Path

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import OPTIONS, Settings
from vllm_hust_vspec.settings.sources import config_from_variables


@pytest.fixture
def toml(tmp_path):
    def write(text: str, table: str = "[serve]\n") -> Path:
        path = tmp_path / "run.toml"
        path.write_text(table + text, encoding="utf-8")
        return path

    return write


def load(flags=None, config=None, environ=None) -> Settings:
    return Settings.load(flags or {}, config, environ or {}, config_name="run.toml" if config else None)


def refusal(flags=None, config=None, environ=None) -> str:
    with pytest.raises(UserError) as caught:
        load(flags, config, environ)
    message = str(caught.value)
    assert "\n" not in message, f"more than one line: {message!r}"
    return message


def test_flag_wins_over_variable_over_file_over_default(toml):
    file, variable, flag = toml("gamma = 5"), {"HUST_VSPEC_GAMMA": "6"}, {"gamma": "7"}
    found = [
        load().serve.gamma,
        load(config=file).serve.gamma,
        load(config=file, environ=variable).serve.gamma,
        load(flag, file, variable).serve.gamma,
    ]
    assert found == [4, 5, 6, 7]


def test_newer_variable_names_win_over_older():
    environ = {"HUST_SPECASCEND_GAMMA": "1"}
    assert load(environ=environ).serve.gamma == 1
    environ["HUST_SPECSLO_GAMMA"] = "2"
    assert load(environ=environ).serve.gamma == 2
    environ["HUST_VSPEC_GAMMA"] = "3"
    assert load(environ=environ).serve.gamma == 3


def test_newer_config_variables_win_over_older():
    environ = {"SPECASCEND_CONFIG": "a"}
    assert config_from_variables(environ) == (Path("a"), "SPECASCEND_CONFIG")
    environ["SPECSLO_CONFIG"] = "b"
    assert config_from_variables(environ) == (Path("b"), "SPECSLO_CONFIG")
    environ["VSPEC_CONFIG"] = "c"
    assert config_from_variables(environ) == (Path("c"), "VSPEC_CONFIG")
    assert config_from_variables({}) is None


def test_an_empty_config_variable_is_refused():
    with pytest.raises(UserError, match="VSPEC_CONFIG is empty"):
        config_from_variables({"VSPEC_CONFIG": ""})


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE", "Yes", " on "])
def test_every_word_for_on_is_on(word):
    assert load(environ={"HUST_VSPEC_PREFIX_CACHING": word}).serve.prefix_caching is True


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "OFF"])
def test_every_word_for_off_is_off(word):
    assert load(environ={"HUST_VSPEC_ASYNC_SCHEDULING": word}).serve.async_scheduling is False


@pytest.mark.parametrize("word", ["maybe", "2", "t", "y", "-1", "none", "tru"])
def test_other_words_are_no_switch(word):
    message = refusal(environ={"HUST_VSPEC_PREFIX_CACHING": word})
    assert message == (f"HUST_VSPEC_PREFIX_CACHING={word} is not a switch; set it to 1/0, true/false, yes/no or on/off")


BAD = [
    ("gamma", "0", "out of range; set it to 1 or more"),
    ("gamma", "-3", "out of range"),
    ("gamma", "2.5", "not a whole number"),
    ("gamma", "four", "not a whole number"),
    ("gamma", "1e3", "not a whole number"),
    ("gamma", "9" * 5000, "not a whole number"),
    ("port", "70000", "out of range; set it to 1..65535"),
    ("port", "0", "out of range"),
    ("method", "drft", "not a choice (did you mean draft?)"),
    ("graph_mode", "FULL_DECODE", "not a choice"),
    ("dtype", "fp16", "not a choice"),
    ("gpu_memory_utilization", "0", "out of range; set it to more than 0 and at most 1"),
    ("gpu_memory_utilization", "1.1", "out of range"),
    ("gpu_memory_utilization", "nan", "out of range"),
    ("adaptive_hysteresis", "inf", "not a number"),
    ("adaptive_hysteresis", "much", "not a number; set it to 0 or more"),
    ("adaptive_ewma_weight", "0", "out of range"),
    ("adaptive_ewma_weight", "2", "out of range"),
    ("adaptive_hysteresis", "-0.1", "out of range"),
    ("adaptive_control_interval", "0", "out of range"),
    ("adaptive_min_gamma", "-1", "out of range"),
    ("adaptive_gamma0_mode", "snc", "not a choice (did you mean sync?)"),
    ("adaptive_entropy_topk", "1", "out of range"),
    ("eagle_draft_active_vocab_size", "1000", "out of range; set it to 1024 or more"),
    ("confidence_accept_margin", "-1", "out of range"),
    ("confidence_protected_token_ids", "1,x", "not a list of token ids"),
    ("confidence_protected_token_ids", "1,-2", "out of range"),
    ("served_model_name", "", "is empty"),
    ("gamma", "", "is empty"),
    ("adaptive_profile", "", "is empty"),
    ("steering_socket", "", "is empty"),
]


@pytest.mark.parametrize(("key", "value", "problem"), BAD)
@pytest.mark.parametrize("source", ["flag", "variable", "file"])
def test_a_bad_value_is_refused_alike_from_every_source(toml, key, value, problem, source):
    spec = OPTIONS[key]
    shown = value if len(value) <= 80 else value[:77] + "..."
    if source == "flag":
        message, name = refusal({key: value}), f"{spec.flag} {shown}"
    elif source == "variable":
        message, name = refusal(environ={str(spec.variable): value}), f"{spec.variable}={shown}"
    else:
        message = refusal(config=toml(f'{key} = "{value}"'))
        name = f"{key} = " if OPTIONS[key].kind == "path" else f'{key} = "{shown}" (run.toml)'
    assert message.startswith(name), message
    assert problem in message, message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gamma = true", "gamma = true (run.toml) is not a whole number"),
        ("gamma = [1]", "gamma = 1 (run.toml) is not a whole number"),
        ("adaptive_hysteresis = false", "is not a number"),
        ("host = 3", "host = 3 (run.toml) is not"),
        ("prefix_caching = 2", "is not a switch"),
        ("method = 1979-05-27", "is not a choice"),
        ("target_model = {a = 1}", "target_model = "),
        ("gama = 3", "run.toml: unknown key gama in [serve]; did you mean gamma?"),
        ("adaptive-min-gamma = 1", "did you mean adaptive_min_gamma?"),
        ("zzz = 3", "docs/options.md lists them all"),
        ("gamma = ", "not valid TOML"),
        ("gamma = 1\ngamma = 2", "not valid TOML"),
        ("[other]\nx = 1", "run.toml: unknown key other; every option goes under [serve]"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_key(toml, text, problem):
    assert problem in refusal(config=toml(text))


def test_a_key_outside_the_table_is_refused(toml):
    assert "every option goes under [serve]" in refusal(config=toml("gamma = 1", table=""))


def test_serve_must_be_a_table(toml):
    assert "serve is not a table" in refusal(config=toml("serve = 3", table=""))


def test_a_missing_file_a_directory_and_bytes_are_refused(tmp_path):
    assert "no such file" in refusal(config=tmp_path / "none.toml")
    assert "cannot be read" in refusal(config=tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(config=tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("HUST_VSPEC_GAMA", "did you mean HUST_VSPEC_GAMMA?"),
        ("HUST_VSPEC_MIN_GAMMA", "did you mean HUST_VSPEC_ADAPTIVE_MIN_GAMMA?"),
        ("HUST_VSPEC_CONFIG", "did you mean VSPEC_CONFIG?"),
        ("HUST_VSPEC_ENABLE", "did you mean HUST_VSPEC_ENABLED?"),
        ("HUST_VSPEC_QQQQQQ", "docs/options.md"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(name, hint):
    message = refusal(environ={name: "1"})
    assert name in message
    assert hint in message


def test_an_unknown_flag_is_refused_with_the_nearest_name():
    assert refusal({"adaptive_min_gama": "1"}) == (
        "--adaptive-min-gama: unknown option; did you mean --adaptive-min-gamma?"
    )


def test_internal_variables_are_known_and_no_options():
    names = ("ENABLED", "DRAFT_MODEL", "EAGLE_MODEL", "MODEL_DIR", "MODEL_REGISTRY")
    settings = load(environ={f"HUST_VSPEC_{name}": "x" for name in names})
    assert not settings.given
    assert settings.serve.draft_model is None


def test_an_old_variable_that_nothing_reads_is_noted():
    settings = load(environ={"HUST_SPECSLO_ABOLISHED": "1", "HUST_SPECSLO_ENABLED": "1"})
    assert settings.notes == ("HUST_SPECSLO_ABOLISHED is ignored: vSpec has no such option",)


def test_a_path_in_a_file_is_relative_to_the_file(toml, tmp_path):
    settings = load(config=toml('adaptive_trace = "t.jsonl"'))
    assert settings.adaptive.trace == tmp_path / "t.jsonl"


def test_a_value_with_line_ends_still_gives_one_line():
    assert refusal(environ={"HUST_VSPEC_METHOD": "a\nb\x1b[31m"}).startswith("HUST_VSPEC_METHOD=a?b?[31m is not")


def test_token_ids_come_from_text_and_from_a_list(toml):
    for settings in (
        load({"confidence_protected_token_ids": "3, 5", "confidence_accept_margin": "1"}),
        load(config=toml("confidence_protected_token_ids = [3, 5]\nconfidence_accept_margin = 1")),
    ):
        assert settings.draft.confidence_protected_token_ids == (3, 5)
