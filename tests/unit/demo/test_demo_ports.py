import socket

import pytest

from vllm_hust_vspec.demo.ports import HOST, choose
from vllm_hust_vspec.errors import UserError


def test_two_different_free_ports_are_found() -> None:
    one, other = choose(None)
    assert one != other


def test_the_given_port_and_the_next_are_used() -> None:
    first = _free_pair()
    assert choose(first) == (first, first + 1)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_port_in_use_is_named(offset: int) -> None:
    first = _free_pair()
    with socket.socket() as taken:
        taken.bind((HOST, first + offset))
        taken.listen()
        with pytest.raises(UserError, match=f"port {first + offset} cannot be used"):
            choose(first)


@pytest.mark.parametrize("port", [-1, 0, 65535, 70000])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(UserError, match=r"1\.\.65534"):
        choose(port)


def _free_pair() -> int:
    for first in range(21000, 30000, 2):
        try:
            return choose(first)[0]
        except UserError:
            continue
    raise AssertionError("no two free ports in a row")
