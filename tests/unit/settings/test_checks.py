"""Options that contradict each other, do nothing, or are not built yet."""

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import OPTIONS, Settings


def load(flags=None, environ=None, file=None, tmp_path=None):
    config = None
    if file is not None:
        config = tmp_path / "run.toml"
        config.write_text("[serve]\n" + file)
    return Settings.load(flags or {}, config, environ or {}, config_name="run.toml" if config else None)


def refusal(*args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_min_gamma_above_gamma_names_both_sources(tmp_path):
    message = refusal(environ={"HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "9"}, file="gamma = 4", tmp_path=tmp_path)
    assert message == "HUST_VSPEC_ADAPTIVE_MIN_GAMMA=9 exceeds --gamma 4 (run.toml); set it to 0..4"


@pytest.mark.parametrize(
    ("flags", "environ", "line"),
    [
        (
            {"adaptive_min_gamma": "3", "gamma": "2"},
            {},
            "--adaptive-min-gamma 3 exceeds --gamma 2; set it to 0..2",
        ),
        (
            {"adaptive_min_gamma": "5"},
            {"HUST_SPECSLO_GAMMA": "3"},
            "--adaptive-min-gamma 5 exceeds --gamma 3 (HUST_SPECSLO_GAMMA); set it to 0..3",
        ),
        (
            {"method": "ngram", "ngram_min": "5"},
            {},
            "--ngram-min 5 exceeds --ngram-max 4 (default); set it to 1..4",
        ),
        (
            {"method": "ngram", "ngram_max": "1"},
            {},
            "--ngram-max 1 is below --ngram-min 2 (default); set it to 2 or more",
        ),
        (
            {"draft_tensor_parallel_size": "2", "tensor_parallel_size": "4"},
            {},
            "--draft-tensor-parallel-size 2 does not fit --tensor-parallel-size 4; set it to 1 or 4",
        ),
        (
            {"max_num_batched_tokens": "64"},
            {},
            "--max-num-batched-tokens 64 is too small for --max-num-seqs 128 (default); set it to 128 or more",
        ),
        (
            {"max_num_seqs": "9000"},
            {},
            "--max-num-seqs 9000 exceeds --max-num-batched-tokens 8192 (default); set it to 1..8192",
        ),
        (
            {"gamma": "9000"},
            {},
            "--gamma 9000 exceeds --max-num-batched-tokens 8192 (default); set it to 1..8191",
        ),
        (
            {"chunked_prefill": False},
            {},
            "--no-chunked-prefill needs --max-num-batched-tokens of at least --max-model-len 32768 (default), "
            "and has --max-num-batched-tokens 8192 (default); raise it",
        ),
        (
            {"adaptive_policy": "profile"},
            {},
            "--adaptive-policy profile needs --adaptive-profile; name a profile file",
        ),
        (
            {"device": "0", "tensor_parallel_size": "2"},
            {},
            "--device 0 names fewer devices than --tensor-parallel-size 2; name one for each",
        ),
        ({"device": "npu0"}, {}, "--device npu0 is not a list of devices; set it to ids such as 2 or 0,1"),
        ({"device": "1,1"}, {}, "--device 1,1 is not a list of devices; set it to ids such as 2 or 0,1"),
        ({"device": "0,"}, {}, "--device 0, is not a list of devices; set it to ids such as 2 or 0,1"),
        (
            {"method": "eagle", "eagle_draft_active_vocab_size": "2048", "eagle_draft_active_vocab_ids": "v.json"},
            {},
            "--eagle-draft-active-vocab-size 2048 contradicts --eagle-draft-active-vocab-ids v.json; give one of them",
        ),
    ],
)
def test_a_contradiction_names_both_sides_and_the_fix(flags, environ, line):
    assert refusal(flags, environ) == line


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"method": "draft", "eagle_tree_width": "2"}, "has no effect with --method draft; it belongs to method eagle"),
        ({"method": "draft", "ngram_min": "1"}, "it belongs to method ngram, or leave it out"),
        ({"method": "ngram", "draft_model": "d"}, "it belongs to method draft, eagle or eagle3"),
        ({"method": "ngram", "async_scheduling": True}, "--async-scheduling has no effect with --method ngram"),
        ({"method": "eagle", "confidence_accept_margin": "1"}, "it belongs to method draft"),
        ({"method": "eagle", "merged_full": True}, "--merged-full has no effect with --method eagle"),
        ({"adaptive_policy": "online", "adaptive_profile": "p"}, "it belongs to policy profile"),
        ({"adaptive_min_observations": "3"}, "has no effect with --adaptive-policy online (default)"),
        ({"adaptive_profile": "p", "adaptive_online_window": "3"}, "(selected by --adaptive-profile p)"),
        ({"adaptive_speculation": False, "adaptive_min_gamma": "1"}, "switch --adaptive-speculation on"),
        ({"adaptive_speculation": False, "adaptive_policy": "online"}, "--adaptive-policy online has no effect"),
        ({"adaptive_speculation": False, "adaptive_profile": "p"}, "--adaptive-profile p has no effect"),
        ({"adaptive_speculation": False, "adaptive_async": True}, "with --no-adaptive-speculation"),
        ({"adaptive_policy": "fixed", "adaptive_hysteresis": "0"}, "with --adaptive-policy fixed"),
        ({"adaptive_policy": "fixed", "adaptive_full_graph": True}, "with --adaptive-policy fixed"),
        ({"graph_mode": "eager", "capture_policy": "exact"}, "with --graph-mode eager"),
        ({"graph_mode": "piecewise", "adaptive_full_graph": True}, "with --graph-mode piecewise"),
        ({"async_scheduling": False, "adaptive_async": True}, "it needs --async-scheduling"),
        ({"adaptive_entropy_topk": "3"}, "it needs --adaptive-entropy-stop"),
        ({"confidence_accept_after_tokens": "3"}, "it needs --confidence-accept-margin"),
        ({"merged_full": False, "merged_full_max_batch": "8"}, "with --no-merged-full; it needs --merged-full"),
        ({"method": "eagle", "eagle_relaxed_accept_after_tokens": "3"}, "it needs --eagle-relaxed-accept-topk"),
    ],
)
def test_an_option_without_effect_is_refused(flags, problem):
    assert problem in refusal(flags)


def test_a_variable_without_effect_is_refused_even_against_a_flag():
    message = refusal({"adaptive_speculation": False}, {"HUST_VSPEC_ADAPTIVE_MIN_GAMMA": "1"})
    assert message.startswith("HUST_VSPEC_ADAPTIVE_MIN_GAMMA=1 has no effect with --no-adaptive-speculation")


def test_an_option_without_effect_inside_one_file_is_refused(tmp_path):
    message = refusal(file='method = "draft"\nngram_min = 1', tmp_path=tmp_path)
    assert message.startswith("ngram_min = 1 (run.toml) has no effect with --method draft (run.toml)")


@pytest.mark.parametrize(
    "flags",
    [
        {"method": "draft", "eagle_draft_trace": False},
        {"method": "draft", "eagle_relaxed_accept_topk": "1"},
        {"method": "draft", "eagle_draft_lm_head_quantization": "none"},
        {"method": "ngram", "async_scheduling": False},
        {"adaptive_speculation": False, "adaptive_async": False},
        {"adaptive_speculation": False, "adaptive_refill_batch": "0"},
    ],
)
def test_switching_off_what_is_not_in_use_is_allowed(flags):
    assert load(flags).notes == ()


def test_a_flag_that_changes_the_mode_sets_the_files_options_aside_with_a_note(tmp_path):
    file = "adaptive_full_graph = true\nadaptive_async = true\nadaptive_min_gamma = 1"
    settings = load({"adaptive_speculation": False}, file=file, tmp_path=tmp_path)
    assert [note.split(" (")[0] for note in settings.notes] == [
        "adaptive_min_gamma = 1",
        "adaptive_full_graph = true",
        "adaptive_async = true",
    ]
    assert all(note.endswith("is set aside by --no-adaptive-speculation") for note in settings.notes)
    assert not settings.adaptive.async_
    assert settings.to_environment() == {"HUST_VSPEC_ADAPTIVE_SPECULATION": "0"}


def test_setting_aside_reaches_options_that_need_each_other(tmp_path):
    file = 'method = "draft"\ndraft_model = "d"\nconfidence_accept_margin = 2\nconfidence_accept_after_tokens = 9'
    settings = load({"method": "ngram"}, file=file, tmp_path=tmp_path)
    assert set(settings.given) == {"method"}
    assert len(settings.notes) == 3


def test_another_method_than_the_files_does_not_borrow_its_drafter(tmp_path):
    file = 'method = "draft"\ndraft_model = "small"'
    settings = load({"method": "eagle"}, file=file, tmp_path=tmp_path)
    assert settings.serve.draft_model is None
    assert settings.notes == ('draft_model = "small" (run.toml) is set aside by --method eagle',)
    assert load({"method": "draft"}, file=file, tmp_path=tmp_path).serve.draft_model == "small"
    assert load({"method": "eagle", "draft_model": "x"}, file=file, tmp_path=tmp_path).serve.draft_model == "x"


def test_a_profile_alone_selects_its_policy(tmp_path):
    assert load({"adaptive_profile": "p.json"}).adaptive.policy == "profile"
    assert load(
        {"adaptive_profile": "p.json"}, file='adaptive_policy = "online"', tmp_path=tmp_path
    ).adaptive.policy == ("profile")
    assert load(environ={"HUST_VSPEC_ADAPTIVE_PROFILE": "p.json"}).adaptive.policy == "profile"


def test_a_files_profile_steps_back_for_a_policy_flag(tmp_path):
    settings = load({"adaptive_policy": "online"}, file='adaptive_profile = "p.json"', tmp_path=tmp_path)
    assert settings.adaptive.policy == "online"
    assert settings.adaptive.profile is None
    assert len(settings.notes) == 1


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({"adaptive_gamma0_mode": "sticky"}, ["--adaptive-gamma0-mode sticky"]),
        ({"adaptive_refill_batch": "8"}, ["--adaptive-refill-batch 8"]),
        ({"adaptive_entropy_stop": True}, ["--adaptive-entropy-stop"]),
        ({"capture_policy": "exact"}, ["--capture-policy exact"]),
        ({"method": "suffix"}, ["--method suffix"]),
        ({"method": "mtp"}, ["--method mtp"]),
        ({"merged_full": True}, ["--merged-full"]),
        ({"shared_tokenizer_padding": True}, ["--shared-tokenizer-padding"]),
        ({"eagle_uniform_state_kernel": True}, ["--eagle-uniform-state-kernel"]),
        ({"eagle_draft_io_trace_dir": "d"}, ["--eagle-draft-io-trace-dir d"]),
    ],
)
def test_an_option_that_is_not_built_yet_is_known(flags, missing):
    assert load(flags).unbuilt() == missing


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"adaptive_refill_batch": "1"},
        {"adaptive_gamma0_mode": "sync"},
        {"adaptive_gamma0_mode": "catchup"},
        {"capture_policy": "auto"},
        {"shared_tokenizer_padding": False},
        {"adaptive_policy": "fixed"},
        {"adaptive_min_gamma": "0", "adaptive_online_window": "9", "adaptive_hysteresis": "0.1"},
        {"adaptive_full_graph": True, "adaptive_async": True, "steering_socket": "/run/s"},
        *({"method": method} for method in ("draft", "eagle", "eagle3", "ngram")),
    ],
)
def test_a_built_option_is_not_reported(flags):
    assert load(flags).unbuilt() == []


def test_unbuilt_options_are_marked_in_their_help():
    from vllm_hust_vspec.settings.reference import describe

    for spec in OPTIONS.values():
        assert spec.facts.built or "Not built yet." in describe(spec), spec.flag
    assert "Not built yet: sticky." in describe(OPTIONS["adaptive_gamma0_mode"])


def test_options_that_are_not_lossless_say_so_in_their_help():
    from vllm_hust_vspec.settings.reference import describe

    lossy = {key for key, spec in OPTIONS.items() if "Not lossless" in describe(spec)}
    assert lossy >= {"eagle_relaxed_accept_topk", "confidence_accept_margin"}
