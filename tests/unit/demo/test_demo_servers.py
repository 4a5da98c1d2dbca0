import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_hust_vspec.demo import servers as servers_module
from vllm_hust_vspec.demo.ports import choose
from vllm_hust_vspec.demo.servers import Server, Servers
from vllm_hust_vspec.errors import UserError

STUB = Path(__file__).with_name("stub_server.py")


def _start(servers: Servers, how: str, tmp_path: Path) -> Server:
    port = choose(None)[0]
    command = [sys.executable, str(STUB), how, str(port)]
    return servers.start("stub", command, os.environ, port, tmp_path / "stub.log")


def _child(log: Path) -> int:
    """Process id of the stub's child, once it is there."""
    for _ in range(100):
        if found := re.search(r"child (\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError("the stub did not start its child")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_is_waited_for_and_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(servers_module, "_POLITE_S", 0.2)
    with Servers() as servers:
        server = _start(servers, "serves", tmp_path)
        servers.wait_until_healthy(20, counts.append)
        child = _child(server.log)
        assert _alive(child)
    assert counts[-1] == 1
    assert not _alive(child), "a child of the server outlives the demo"


@pytest.mark.parametrize("how", ["hangs", "deaf"])
def test_a_server_that_ignores_ctrl_c_is_killed(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "_POLITE_S", 0.2)
    with Servers() as servers:
        child = _child(_start(servers, how, tmp_path).log)
    assert not _alive(child)


def test_a_server_that_is_late_is_named_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "_POLITE_S", 0.2)
    with Servers() as servers:
        server = _start(servers, "hangs", tmp_path)
        with pytest.raises(UserError, match="stub server was not ready after 0 s") as caught:
            servers.wait_until_healthy(0.2, lambda _: None)
    assert str(server.log) in str(caught.value)


def test_a_server_that_fails_is_told_with_its_reason_and_log(tmp_path: Path) -> None:
    with Servers() as servers:
        server = _start(servers, "fails", tmp_path)
        with pytest.raises(UserError) as caught:
            servers.wait_until_healthy(20, lambda _: None)
    told = str(caught.value)
    assert "ended with code 3" in told
    assert "vspec: this host does not fit: no such field" in told
    assert str(server.log) in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("a\nvspec: no such field\nRuntimeError: engine died\n", "vspec: no such field"),
        (
            "W: `OSError: files`\n(EngineCore pid=7) ERROR 11-30 [core.py:1] ValueError: 3 heads\nRuntimeError: died",
            "ValueError: 3 heads",
        ),
        ("Traceback\n  raise X\nRuntimeError: first\nRuntimeError: second\n", "RuntimeError: first"),
        ("all quiet\n", "no reason in its output"),
    ],
)
def test_the_cause_is_found_in_a_long_log(log: str, told: str, tmp_path: Path) -> None:
    with Servers() as servers:
        server = _start(servers, "fails", tmp_path)
        server._process.wait()
        server.log.write_text(log)
        with pytest.raises(UserError) as caught:
            server.check()
    assert f"({told})" in str(caught.value)


_HARNESS = """
import sys
from pathlib import Path
from vllm_hust_vspec.demo import cli, launch, servers
servers._POLITE_S = 0.2
cli.prepare = lambda say: Path("model")
cli._NEEDED = {}
def starts(model, drafter, ports, socket):
    return [launch.Start([sys.executable, sys.argv[1], "hangs", str(port)], {}) for port in ports]
launch.starts = starts
cli.main(["--quick", "--json", sys.argv[2]])
"""


def _stuck_demo(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A demo whose two servers never get ready, and the process ids that these wrote into their logs."""
    (tmp_path / "out").mkdir()
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path / "data"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _HARNESS, str(STUB), str(tmp_path / "out/demo.json")]
    demo = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(200):
        logs = sorted((tmp_path / "data").rglob("*.log"))
        if len(logs) == 2:
            return demo, [_child(log) for log in logs]
        time.sleep(0.05)
    raise AssertionError("the demo did not start two servers")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_demo_leaves_no_process_and_no_file(number: int, tmp_path: Path) -> None:
    demo, children = _stuck_demo(tmp_path)
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=20)
    assert demo.returncode == 128 + number
    assert errors.splitlines()[-1].startswith("vspec: the demo was stopped")
    assert "Traceback" not in errors
    assert not [child for child in children if _alive(child)], "a server's child outlives the demo"
    assert not list((tmp_path / "out").iterdir()), "a stopped demo leaves a file"
    assert not list(tmp_path.glob("vspec-demo-*")), "a stopped demo leaves its scratch directory"


def test_a_killed_demo_takes_its_servers_with_it(tmp_path: Path) -> None:
    demo, children = _stuck_demo(tmp_path)
    servers = [_parent(child) for child in children]
    demo.kill()
    demo.communicate()
    for _ in range(100):
        if not any(_alive(server) for server in servers):
            break
        time.sleep(0.05)
    left = [server for server in servers if _alive(server)]
    for child in children:  # of the stub, which leaves it behind, as vLLM does not
        os.kill(child, signal.SIGKILL)
    assert not left
