"""Ctrl-C, SIGTERM and SIGHUP end the demo in order; while a server starts or ends they wait."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """Raised in the main thread by a signal that ends the demo."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def install() -> None:
    for number in _ENDING:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # nohup goes on working
            signal.signal(number, _raise)


@contextmanager
def held() -> Iterator[None]:
    """Nothing in here is cut short: a signal that arrives meanwhile takes effect at the end."""
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda got, _: arrived.append(got)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def _raise(number: int, _: FrameType | None) -> None:
    raise Stopped(number)
