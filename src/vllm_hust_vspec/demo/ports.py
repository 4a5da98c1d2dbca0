"""Two TCP ports for the demo's servers."""

import socket
from contextlib import ExitStack

from vllm_hust_vspec.errors import UserError

HOST = "127.0.0.1"


def choose(first: int | None) -> tuple[int, int]:
    """`first` and the one after it, both found free; any two free ones where `first` is None."""
    if first is None:
        return _any_two()
    if not 1 <= first <= 65534:
        raise UserError(f"--port {first} is out of range; the demo uses it and the next one, so choose 1..65534")
    for port in (first, first + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise UserError(
                    f"port {port} cannot be used ({error.strerror}); the demo needs --port N and N+1 free, "
                    "choose another N, or leave the option out"
                ) from error
    return first, first + 1


def _any_two() -> tuple[int, int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind((HOST, 0))
        one, other = (int(probe.getsockname()[1]) for probe in probes)
        return one, other
