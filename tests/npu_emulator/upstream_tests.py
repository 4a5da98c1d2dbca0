"""Run vLLM-Ascend's own unit tests on the emulated NPU and tell what passes, what fails, and why.

usage: python tests/npu_emulator/upstream_tests.py SDIST_OR_CHECKOUT [--folder NAME ...] [--timeout SECONDS] [--log
FILE]

SDIST_OR_CHECKOUT is the source of the installed vLLM-Ascend; its tests/ut is copied to a temporary folder and run
there, one process a folder, with the Python that runs this script: that of an environment with the emulator, vLLM,
vLLM-Ascend, pytest and pytest-mock. As far as the tests can tell, an NPU is present, so those that need one run too. A
failure whose reason upstream_known.py does not know makes the exit code 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from upstream_known import KNOWN, MODELS, NOT_RUN

SUITE = Path("tests/ut")
# Must not be importable beside the installed package, or is of no use to the tests.
LEFT_OUT = {"vllm_ascend", "csrc", ".git", ".venv", "build"}
ENVIRONMENT = {
    "CI": "",  # set, PyTorch refuses operators that return an input of theirs, as some of vLLM-Ascend's do
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCH_NPU_EMULATOR_MEMORY_GIB": "64",
    "TRITON_INTERPRET": "1",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test, or a folder that ended before its tests did. status: passed, failed or skipped."""

    test: str
    status: str
    message: str = ""

    def reason(self) -> str | None:
        """Why this failure is expected, or None."""
        for test, message, reason in KNOWN:
            if re.search(test, self.test) and re.search(message, self.message):
                return reason
        return None


def unpack(source: Path, target: Path) -> None:
    """Copy a checkout or a source archive into target, without the package itself and its C++ sources.

    Raises FileNotFoundError if it holds no unit tests.
    """
    if source.is_dir():
        shutil.copytree(
            source,
            target,
            dirs_exist_ok=True,
            symlinks=True,
            ignore=lambda folder, names: LEFT_OUT.intersection(names) if Path(folder) == source else set(),
        )
    else:
        with tarfile.open(source) as archive:
            for member in archive:
                _, _, member.name = member.name.partition("/")
                if member.name and member.name.partition("/")[0] not in LEFT_OUT:
                    archive.extract(member, target, filter="data")
    if not (target / SUITE).is_dir():
        raise FileNotFoundError(f"{source} has no {SUITE}; give a vLLM-Ascend checkout or source archive")


def link_package(target: Path) -> None:
    """Let tests that read vLLM-Ascend's sources find the installed ones where a checkout has them."""
    spec = find_spec("vllm_ascend")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"{sys.executable} has no vllm_ascend; run this with the Python of the emulated NPU host"
        )
    (target / "vllm_ascend").symlink_to(next(iter(spec.submodule_search_locations)), target_is_directory=True)


def pretend_npu(target: Path) -> Path:
    """A folder with an `npu-smi` that succeeds: the suite asks it whether to use torch_npu or mocks of it."""
    command = target / "bin" / "npu-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nexit 0\n")
    command.chmod(0o755)
    return command.parent


def model_configs(target: Path) -> Path:
    """A Hugging Face cache with the configuration of the models that the suite reads configurations of; no weights."""
    home = target / "hugging_face"
    revision = "0" * 40
    for name, config in MODELS.items():
        model = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = model / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text(revision)
    return home


def folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """(name, what pytest is given) of each part of the suite: the folders below it, and the files directly in it."""
    files = sorted(path.relative_to(root).as_posix() for path in (root / SUITE).glob("test_*.py"))
    if files:
        yield "(files)", files
    for folder in sorted(path for path in (root / SUITE).iterdir() if path.is_dir()):
        if any(folder.rglob("test_*.py")):
            yield folder.name, [folder.relative_to(root).as_posix()]


def run(
    root: Path, environment: dict[str, str], name: str, what: list[str], timeout: float, log: Path | None
) -> list[Outcome]:
    """Run one part of the suite and read its outcomes."""
    report = root / f"{name.strip('()')}.xml"
    left_out = [f"--ignore-glob=*/{pattern}" for pattern in NOT_RUN]
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *what, *left_out, *options]
    try:
        result = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return [Outcome(f"{name}: the folder", "failed", f"not done after {timeout:.0f} s")]
    if log is not None:
        with log.open("a") as file:
            file.write(f"===== {name}\n{result.stdout}\n{result.stderr}\n")
    if not report.is_file():
        last = (result.stdout + result.stderr).strip().splitlines()[-1:]
        return [Outcome(f"{name}: the folder", "failed", f"ended with code {result.returncode}: {''.join(last)}")]
    return list(read_report(report))


def read_report(report: Path) -> Iterator[Outcome]:
    """The outcomes in a JUnit report of pytest."""
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("tests.ut.")
        problems = [*case.iter("failure"), *case.iter("error")]
        if problems:
            yield Outcome(test, "failed", message_of(problems[0]))
        else:
            yield Outcome(test, "skipped" if case.find("skipped") is not None else "passed")


def message_of(problem: ElementTree.Element) -> str:
    """The exception of a failure on one line; of a module that could not be collected, the last line of its error."""
    message = problem.get("message") or ""
    if message in ("", "collection failure"):
        lines = [line[1:] for line in (problem.text or "").splitlines() if line.startswith("E ")]
        message = f"{message}: {lines[-1] if lines else problem.text or ''}"
    return " ".join(message.split())


def show(results: dict[str, list[Outcome]]) -> int:
    """Print the table and the failures. Returns the number of failures whose reason is not known."""
    print(f"{'folder':24} {'passed':>7} {'skipped':>8} {'failed':>7}")
    total: Counter[str] = Counter()
    for name, outcomes in results.items():
        count = Counter(outcome.status for outcome in outcomes)
        total += count
        print(f"{name:24} {count['passed']:>7} {count['skipped']:>8} {count['failed']:>7}")
    print(f"{'all':24} {total['passed']:>7} {total['skipped']:>8} {total['failed']:>7}")

    failures = [outcome for outcomes in results.values() for outcome in outcomes if outcome.status == "failed"]
    reasons: dict[str, list[Outcome]] = {}
    unknown = []
    for outcome in failures:
        reason = outcome.reason()
        if reason is None:
            unknown.append(outcome)
        else:
            reasons.setdefault(reason, []).append(outcome)
    if reasons:
        print("\nFailures with a known reason")
    for reason, outcomes in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(outcomes):5}  {reason}")
        modules = Counter(outcome.test.partition("::")[0] for outcome in outcomes)
        print(*(f"         {module} ({count})" for module, count in sorted(modules.items())), sep="\n")
    if unknown:
        print("\nFailures of unknown reason")
    for outcome in unknown:
        print(f"       {outcome.test}\n         {outcome.message[:200]}")
    return len(unknown)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="vLLM-Ascend source archive or checkout")
    parser.add_argument("--folder", action="append", help="run this folder of tests/ut alone (may be repeated)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that a folder may take (default 600)")
    parser.add_argument("--log", type=Path, help="append pytest's output to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="upstream-tests-") as folder:
        root = Path(folder)
        try:
            unpack(options.source, root)
            link_package(root)
        except (OSError, tarfile.TarError) as error:
            print(f"upstream_tests: {error}", file=sys.stderr)
            return 2
        path = f"{pretend_npu(root)}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, **ENVIRONMENT, "PATH": path, "HF_HOME": str(model_configs(root))}
        results = {}
        for name, what in folders(root):
            if options.folder and name not in options.folder:
                continue
            results[name] = run(root, environment, name, what, options.timeout, options.log)
            print(f"{name}: {len(results[name])} tests", file=sys.stderr, flush=True)
    if not results:
        print(f"upstream_tests: {options.source} has no folder {', '.join(options.folder or ())}", file=sys.stderr)
        return 2
    return 1 if show(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
