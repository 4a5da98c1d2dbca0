"""The scheduler class that the host resolves is extended, whatever class that is."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.host import scheduler
from vllm_hust_vspec.host.carried_gamma import CarriedGamma
from vllm_hust_vspec.host.scheduler import AdaptiveScheduler, adaptive_class
from vllm_hust_vspec.host.scope import Scope
from vllm_hust_vspec.settings import Settings

SCOPE = Scope("adaptive", "", "eagle", 4)


class Hosts:
    def __init__(self) -> None:
        self.added: list[Any] = []

    def add_request(self, request: Any) -> None:
        self.added.append(request)


@pytest.mark.parametrize("carries", [True, False])
def test_gamma_is_brought_only_where_the_host_carries_none(carries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "host_carries_gamma", lambda: carries)
    found = adaptive_class(Hosts, SCOPE, Settings())
    assert found.__name__ == "AdaptiveHosts"
    assert found.__mro__[1] is AdaptiveScheduler
    assert issubclass(found, CarriedGamma) is not carries
    assert issubclass(found, Hosts)
    assert adaptive_class(found, SCOPE, Settings()) is found


def test_requests_can_be_asked_whether_they_are_stale() -> None:
    found = adaptive_class(Hosts, SCOPE, Settings())
    started = found.__new__(found)
    Hosts.__init__(started)
    ours, hosts = Thing(), Thing(num_stale_output_tokens=3)
    for request in (ours, hosts):
        started.add_request(request)
    assert (ours.num_stale_output_tokens, hosts.num_stale_output_tokens) == (0, 3)
    assert started.added == [ours, hosts]
