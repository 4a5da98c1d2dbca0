"""The profile file: what is read, and the one line for what is not."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings.profile_file import ProfileFile, read_profile

EXAMPLE = Path(__file__).parents[3] / "profiles" / "example.json"


def profile(**changes):
    return {**json.loads(EXAMPLE.read_text()), **changes}


@pytest.fixture
def refusal(tmp_path):
    path = tmp_path / "p.json"

    def refuse(content) -> str:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        with pytest.raises(UserError) as refused:
            read_profile(path)
        line = str(refused.value)
        assert line.startswith(f"--adaptive-profile {path}: ")
        assert line.isprintable(), "a terminal must be safe from what a file says"
        return line.removeprefix(f"--adaptive-profile {path}: ")

    return refuse


def test_the_example_is_a_profile():
    found = read_profile(EXAMPLE)
    assert (found.max_speculative_tokens, found.initial_gamma) == (4, 2)
    assert found.batch_gamma_policy == {8: 4, 32: 3, 128: 1}
    assert found.target.ms(1000, 10) == pytest.approx(0.1 + 1.1 + 21.0)


def test_only_the_documented_keys_are_needed(tmp_path):
    path = tmp_path / "p.json"
    needed = {key: profile()[key] for key in ("schema_version", "max_speculative_tokens", "target", "draft")}
    path.write_text(json.dumps(needed))
    assert (read_profile(path).initial_gamma, read_profile(path).default_acceptance_rate) == (None, 0.7)
    for key in needed:
        path.write_text(json.dumps({name: value for name, value in needed.items() if name != key}))
        with pytest.raises(UserError, match=f"{key} is missing"):
            read_profile(path)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"schema_version": 2}, "schema_version is 2, and should be 1"),
        ({"anchors": {}}, "unknown key anchors"),
        ({"target": {**profile()["target"], "beta": 1}}, "unknown key target.beta"),
        ({"max_speculative_tokens": "4"}, "max_speculative_tokens is '4'"),
        ({"max_speculative_tokens": 0}, "max_speculative_tokens is 0"),
        ({"initial_gamma": 5}, "initial_gamma names gamma 5, above max_speculative_tokens 4"),
        ({"per_gamma_overhead_ms": {"5": 1.0}}, "per_gamma_overhead_ms names gamma 5"),
        ({"per_gamma_overhead_ms": {"1": -1.0}}, "per_gamma_overhead_ms.1 is -1.0"),
        ({"batch_gamma_policy": {"0": 1}}, "batch_gamma_policy.0 is '0'"),
        ({"default_acceptance_rate": 1.5}, "default_acceptance_rate is 1.5"),
        ({"default_acceptance_rate": math.nan}, "default_acceptance_rate is nan"),
        ({"draft_parallel": 1}, "draft_parallel is 1"),
        ({"measured_on": {"device": 7}}, "measured_on.device is 7"),
        ({"line\nbreak\x1b[31m": 1}, "unknown key line?break?[31m"),
    ],
)
def test_a_bad_key_is_named(changes, line, refusal):
    assert refusal(profile(**changes)).startswith(line)


def test_a_target_that_takes_no_time_is_refused(refusal):
    free = {"alpha_ms_per_context_token": 1, "gamma_ms_per_batched_token": 0, "delta_ms": 0}
    assert refusal(profile(target=free)).startswith("target takes no time")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"x" * (2 << 20), b"null", b"[1]"])
def test_a_file_that_is_no_json_object_is_refused_in_one_line(content, refusal):
    assert len(refusal(content)) < 200


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    for path, why in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=why):
            read_profile(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*ProfileFile.model_fields, "other"]), json_values, max_size=4))
def test_no_content_does_anything_but_pass_or_be_refused(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(profile(**changes)))
    line = ""
    try:
        read_profile(path)
    except UserError as refused:
        line = str(refused)
    assert line == "" or line.isprintable()
