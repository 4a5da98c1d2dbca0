"""Run one long command quietly: its output into a log, its progress on one line, its failure told in one line."""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

HEARTBEAT_S = 30.0
GRACE_S = 10.0
_TAIL_LINES = 200  # a failed build prints its compiler's error far above the end

_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|Name or service not known"
    r"|Network is unreachable|Connection refused|ConnectTimeout|ReadTimeout|Read timed out|ProxyError"
    r"|Max retries exceeded|ConnectionError|connection broken|HTTP error 50\d"
)
_NO_ROOM = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded")
# The second form is what pip says instead where a constraints file names the package.
_NO_MATCH = re.compile(r"(?:No matching distribution found for|ERROR: Cannot install) (\S+)")
_COMPILER = re.compile(r"\S+:\d+(?::\d+)?: (?:fatal )?error: .+|.*(?:undefined reference to|multiple definition of) .+")


class SetupError(Exception):
    """A set-up that cannot go on; the message is one line that names the cause and the fix."""


class NoMatchError(SetupError):
    """The package index answered, and has no build of that version for this Python and machine."""


class Interrupted(BaseException):
    """A signal asked for the end; `signum` tells which."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def catch_signals() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted; SIGHUP not under nohup.

    SIGINT counts even where it is ignored, as it is for what a script starts in the background: who sends it means it.
    """

    def interrupt(signum: int, frame: object) -> None:
        raise Interrupted(signum)

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, interrupt)


class Progress:
    """One line per stage on a stream: live on a terminal, a closing line and a heartbeat elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._label = ""
        self._start = self._beat = 0.0

    def say(self, line: str) -> None:
        """Print a line of its own."""
        print(line, file=self._stream, flush=True)

    def begin(self, label: str) -> None:
        """Start the clock of a stage."""
        self._label = label
        self._start = self._beat = time.monotonic()
        self.update("")

    def update(self, detail: str) -> None:
        """Show that the stage goes on; `detail` is the last line that its command printed."""
        now = time.monotonic()
        if self._live:
            line = f"{self._label} … {now - self._start:.0f} s  {detail}"
            width = max(20, shutil.get_terminal_size().columns - 1)
            print(f"\r\x1b[K{line[:width]}", end="", file=self._stream, flush=True)
        elif now - self._beat >= HEARTBEAT_S:
            self._beat = now
            self.say(f"{self._label} … {now - self._start:.0f} s so far: {detail[:100]}")

    def end(self, note: str = "") -> None:
        """Close the stage with its seconds."""
        clear = "\r\x1b[K" if self._live else ""
        self.say(f"{clear}{self._label}: {note}{time.monotonic() - self._start:.1f} s")

    def abandon(self) -> None:
        """Leave the cursor on a fresh line, so that an error does not share the stage's."""
        if self._live and self._label:
            print(file=self._stream, flush=True)


def run_logged(
    command: Sequence[str],
    *,
    stage: str,
    log: Path,
    progress: Progress,
    env: Mapping[str, str],
    keep_open: Sequence[int] = (),
    stop_when: Callable[[str], bool] | None = None,
) -> bool:
    """Run a command to its end, appending what it prints to `log`. True when it ended well.

    A line for which `stop_when` holds ends the command early, and the answer is False. `keep_open` are descriptors
    that the child inherits: with the lock among them, a child that outlives us still holds it. Raises SetupError
    (or NoMatchError) with one line on failure; on a signal the child is ended first.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"\n$ {' '.join(command)}\n")
        sink.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(env),
            pass_fds=tuple(keep_open),
            start_new_session=True,
        )
        lines = _lines_of(process)
        try:
            while True:
                try:
                    line = lines.get(timeout=0.5)
                except queue.Empty:
                    progress.update(tail[-1] if tail else "")
                    continue
                if line is None:
                    break
                sink.write(line)
                sink.flush()
                if line.strip():
                    tail.append(line.strip())
                    progress.update(tail[-1])
                if stop_when is not None and stop_when(line):
                    _end(process)
                    return False
            process.wait()
        except BaseException:
            _end(process)
            raise
    if process.returncode != 0:
        raise explain(stage, list(tail), log)
    return True


def explain(stage: str, tail: Sequence[str], log: Path) -> SetupError:
    """The one line for a failed command, from the end of its output."""
    text = "\n".join(tail)
    if _NO_ROOM.search(text):
        return SetupError(
            f"no room left on the disk while installing {stage}; free some and run the same command again (log: {log})"
        )
    if _NO_NETWORK.search(text):
        return SetupError(
            f"cannot reach the package index while installing {stage}; check the network, or pip's index and proxy "
            f"settings (pip config list), and run the same command again (log: {log})"
        )
    if found := _NO_MATCH.search(text):
        return NoMatchError(
            f"pip finds no {found[1]} for this Python and machine; try another Python (3.11 to 3.14), or see pip's "
            f"index and constraint settings with: pip config list (log: {log})"
        )
    errors = [line for line in tail if _COMPILER.fullmatch(line)][:1]
    errors = errors or [line for line in tail if line.startswith(("ERROR:", "error:", "Error:"))]
    last = (errors or list(tail) or ["it printed nothing"])[-1]
    return SetupError(f"installing {stage} failed: {last[:200]} (log: {log})")


def _lines_of(process: subprocess.Popen[str]) -> queue.SimpleQueue[str | None]:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return lines


def _end(process: subprocess.Popen[str]) -> None:
    """End a command's whole process group: politely, then not."""
    for signum, patience in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, signum)
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.wait()
        except Interrupted:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def clean_environment(environ: Mapping[str, str], venv: Path) -> dict[str, str]:
    """The caller's environment with `venv` active and nothing that would mix other packages into it."""
    leaks = {
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_USER",
        "PIP_REQUIRE_HASHES",
    }
    env = {name: value for name, value in environ.items() if name not in leaks}
    env["VIRTUAL_ENV"] = str(venv)
    env["PATH"] = f"{venv / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return env


def stderr_progress() -> Progress:
    """The progress that the scripts show: on stderr, so that stdout holds only a command's own output."""
    return Progress(sys.stderr)
