"""manage.sh: one test command, and one line for what it does not know or does not do yet."""

import subprocess
import sys

import pytest
from checkouts import VERSION, Checkout

from manage import LATER


def manage(checkout: Checkout, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, checkout.root / "scripts" / "manage.py", *arguments]
    return subprocess.run(command, env=checkout.environ | environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["test", "--hots", "cpu"], "unknown argument '--hots'; pytest's own arguments stand after --"),
        (["test", "-k", "x"], "unknown argument '-k'; pytest's own arguments stand after --"),
        (["test", "--host", "gpu"], "invalid choice: 'gpu'"),
        (["test", "--", "tests/npu_emulator"], "tests/npu_emulator runs on the emulated NPU; add --host emulated-npu"),
        (["install"], "install without --editable is not built yet"),
        (["install", "--editable", "--enable"], "unknown argument '--enable'"),
        (["install", "--editable", "--", "x"], "takes nothing after --"),
        (["--python", "/nowhere/python", "install", "--editable"], "/nowhere/python is not a Python 3.11 or newer"),
        *(([verb], f"manage.sh {verb} is not built yet") for verb in LATER),
        (["run", "--dry-run", "--", "vllm-hust-vspec", "--config", "x"], "manage.sh run is not built yet"),
    ],
)
def test_bad_or_early_input_is_one_line_and_exit_code_2(checkout: Checkout, arguments: list[str], told: str) -> None:
    done = manage(checkout, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("vspec: ")


def test_a_dry_run_shows_each_hosts_commands_and_sets_nothing_up(checkout: Checkout) -> None:
    done = manage(checkout, "--dry-run", "test", "--host", "all")
    assert (done.returncode, done.stderr) == (0, "")
    cpu, emulated, engines = done.stdout.splitlines()
    assert engines.endswith("/tests/e2e_npu'")
    assert "/.venv/bin/python" in cpu
    assert "VLLM_CPU_KVCACHE_SPACE=1 " in cpu
    assert "/.venv-npu/bin/python" in emulated
    assert "TRITON_INTERPRET=1 " in emulated
    assert not list(checkout.root.glob(".venv*"))


def test_a_checkout_that_is_none_is_told_before_anything_is_done(checkout: Checkout) -> None:
    done = manage(checkout, "test", "--host", "emulated-npu", VSPEC_TEST_ASCEND_SOURCE=str(checkout.state))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"VSPEC_TEST_ASCEND_SOURCE={checkout.state} is not a checkout of vLLM-Ascend" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(checkout.root.glob(".venv*"))


def test_a_dry_run_can_be_pasted_into_a_shell(checkout: Checkout) -> None:
    done = manage(checkout, "test", "--dry-run", "--", "-k", "a or 'b'")
    echoed = done.stdout.replace(f"'{checkout.root}/.venv/bin/python'", "printf '<%s>'")
    pasted = subprocess.run(["bash", "-c", echoed], capture_output=True, text=True)
    assert pasted.stdout.endswith("<-k><a or 'b'>"), (echoed, pasted.stderr)


def test_install_goes_into_the_python_that_is_named(checkout: Checkout) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)
    python = str(checkout.root / ".venv" / "bin" / "python")
    done = manage(checkout, "install", "--editable", "--skip-model-setup", VSPEC_PYTHON=python)
    assert (done.returncode, done.stderr) == (0, "")
    assert (checkout.site_packages / f"vllm_hust_vspec-{VERSION}.dist-info").is_dir()


def test_uninstall_tells_of_a_copy_that_it_does_not_reach(checkout: Checkout) -> None:
    # The pretended pip removes nothing, and the real Python behind it has the plugin installed.
    shown = manage(checkout, "--python", str(checkout.python), "uninstall")
    assert shown.returncode == 1
    assert "stays visible; remove it there" in shown.stderr


def test_install_without_models_says_so(checkout: Checkout) -> None:
    done = manage(checkout, "--dry-run", "--python", str(checkout.python), "install", "--editable")
    assert done.stdout == f"{checkout.python} -m pip install --editable '{checkout.root}'\n"
    assert "no drafter was set up (not built yet); name one with --draft-model" in done.stderr
