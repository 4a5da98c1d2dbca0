"""The hosts that tests run on, and the pytest calls for each."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ascend import signatures_file
from layers import LAYERS, SOURCE_VENV
from pip_runner import SetupError
from place import Place
from setup_env import ensure
from source_checkout import VARIABLE

WORKERS = 2
# One thread per engine: on few cores, tiny models spend their time on waking threads.
SHARED: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
ON_CPU: Mapping[str, str] = {**SHARED, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
# Triton's interpreter runs the kernels; compiled code of another run must not be taken for this one's. Where CI is set,
# PyTorch refuses operators that return an input of theirs, as some of vLLM-Ascend's do.
ON_EMULATOR: Mapping[str, str] = {
    **SHARED,
    "CI": "",
    "TRITON_INTERPRET": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
}
# Only the emulated host can run these; everything else is the cpu host's.
EMULATED_PATHS = ("tests/npu_emulator", "tests/e2e_npu")


@dataclass(frozen=True, slots=True)
class Call:
    """A command with the variables that it needs beyond those of the caller."""

    command: tuple[str, ...]
    variables: Mapping[str, str]

    def as_shell(self) -> str:
        """The call as a line to paste into a shell."""
        pairs = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*pairs, shlex.join(self.command)])


@dataclass(frozen=True, slots=True)
class Host:
    """A host by its name, with the layer that it needs and, for a checkout of vLLM-Ascend, that checkout."""

    name: str
    layer: str
    ascend_source: str = ""

    def place(self, root: Path) -> Place:
        """The environment that the host's tests run in."""
        return Place(root, SOURCE_VENV if self.ascend_source else LAYERS[self.layer].venv)

    def set_up(self) -> Place:
        """Bring that environment to its layer; ends the process with one line when that cannot be."""
        return ensure(self.layer, ascend_source=self.ascend_source)

    def variables(self, root: Path) -> Mapping[str, str]:
        """The variables that its tests need."""
        if self.layer == "cpu-host":
            return ON_CPU
        return {**ON_EMULATOR, "TORCH_NPU_EMULATOR_C_ASCEND_SCHEMAS": str(signatures_file(self.place(root)))}

    def takes(self, path: Path, root: Path) -> bool:
        """Whether a selected path is for this host when each path goes to one host."""
        emulated = any(path.is_relative_to(root / own) for own in EMULATED_PATHS)
        return emulated == (self.layer == "emulated-npu")


def chosen_hosts(name: str, environ: Mapping[str, str]) -> list[Host]:
    """The hosts of `--host name`, in the order in which they run."""
    cpu = Host("cpu", "cpu-host")
    emulated = Host("emulated-npu", "emulated-npu", environ.get(VARIABLE, ""))
    return {"cpu": [cpu], "emulated-npu": [emulated], "all": [cpu, emulated]}[name]


def plan(hosts: Sequence[Host], root: Path, arguments: Sequence[str], caller: Path) -> list[tuple[Host, list[Call]]]:
    """What to run on each host for the arguments after `--`.

    With one host all arguments are its own; with several, each path goes to the host that it is for, and a host
    without any is left out. Raises SetupError for paths that the one host cannot run.
    """
    given = [_resolved(argument, root, caller) for argument in arguments]
    paths = [Path(text.split("::")[0]) for text, is_path in given if is_path]
    if len(hosts) == 1 and hosts[0].layer == "cpu-host":
        foreign = next((path for path in paths if not hosts[0].takes(path, root)), None)
        if foreign:
            raise SetupError(f"{foreign.relative_to(root)} runs on the emulated NPU; add --host emulated-npu")
    planned = []
    for host in hosts:
        own = [
            (text, is_path)
            for text, is_path in given
            if len(hosts) == 1 or not is_path or host.takes(Path(text.split("::")[0]), root)
        ]
        if paths and not any(is_path for _, is_path in own):
            continue
        planned.append((host, _calls(host, root, own)))
    return planned


def _calls(host: Host, root: Path, given: Sequence[tuple[str, bool]]) -> list[Call]:
    """The pytest calls of a host for arguments that are resolved: (text, whether it is a path).

    By default everything but the benchmarks in a few processes, then the cpu host's benchmarks alone, since a
    neighbour would spoil their figures; on the emulated host the emulator's own tests, then the engines.
    """
    variables = host.variables(root)
    pytest = (str(host.place(root).python), "-m", "pytest", "-c", str(root / "pyproject.toml"))
    texts = [text for text, _ in given]
    selected = [Path(text.split("::")[0]) for text, is_path in given if is_path]
    benchmarks = root / "tests" / "benchmarks"
    if selected and all(path.is_relative_to(benchmarks) for path in selected):
        return [Call((*pytest, "-p", "no:xdist", *texts), variables)]
    command = [*pytest]
    if not any(_is_about_workers(text) for text in texts):
        command += ["-n", str(WORKERS), "--dist", "loadscope"]
    selections = [()] if selected else _default_selections(host, root, benchmarks)
    calls = [Call((*command, *selection, *texts), variables) for selection in selections]
    if host.layer == "cpu-host" and not given and any(benchmarks.glob("**/test_*.py")):
        calls.append(Call((*pytest, "-p", "no:xdist", str(benchmarks)), variables))
    return calls


def _default_selections(host: Host, root: Path, benchmarks: Path) -> list[tuple[str, ...]]:
    if host.layer == "emulated-npu":
        # Not in one process: the emulator's tests register operators that the engines' own would collide with.
        return [(str(root / "tests" / "npu_emulator" / "tests"),), (str(root / "tests" / "e2e_npu"),)]
    left_out = [benchmarks, *(root / path for path in EMULATED_PATHS)]
    return [(str(root / "tests"), *(f"--ignore={path}" for path in left_out))]


def _is_about_workers(argument: str) -> bool:
    return (
        argument in ("-d", "--pdb", "--trace")
        or "no:xdist" in argument
        or argument.startswith(("-n", "--numpro", "--dist"))
    )


def _resolved(argument: str, root: Path, caller: Path) -> tuple[str, bool]:
    """A pytest argument with its path made absolute, and whether it is a path (or a node id of one).

    Paths are looked up from where the caller stands, if that is in the checkout, then from its top.
    """
    name, mark, rest = argument.partition("::")
    if name and not name.startswith("-"):
        for base in (caller, root) if caller.is_relative_to(root) else (root, caller):
            if (base / name).exists():
                return f"{(base / name).resolve()}{mark}{rest}", True
    return argument, False


# What a tester may have set for a server of his own must not reach the tests.
_USERS_OWN = ("HUST_VSPEC_", "HUST_SPECSLO_", "HUST_SPECASCEND_", "VLLM_PLUGINS")
_CONFIGS = ("VSPEC_CONFIG", "SPECSLO_CONFIG", "SPECASCEND_CONFIG")


def callers_environment() -> dict[str, str]:
    """The caller's variables without those that would change what the tests test."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_USERS_OWN) and name not in _CONFIGS
    }
