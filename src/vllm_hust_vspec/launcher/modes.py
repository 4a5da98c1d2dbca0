"""The graph and scheduling mode that a run really gets, and a note wherever that is not what was asked."""

from dataclasses import dataclass

from vllm_hust_vspec.launcher.host import Host
from vllm_hust_vspec.settings import Settings


@dataclass(frozen=True, slots=True)
class Modes:
    """graph: a --graph-mode. asynchronous: None where the method leaves no choice."""

    graph: str
    asynchronous: bool | None
    notes: tuple[str, ...]


def modes(settings: Settings, host: Host) -> Modes:
    """Graphs and scheduling after what adaptive gamma and the host allow."""
    notes: list[str] = []
    graph = _graph(settings, host, notes)
    asynchronous = _asynchronous(settings, host, notes)
    return Modes(graph, asynchronous, tuple(notes))


def _graph(settings: Settings, host: Host, notes: list[str]) -> str:
    asked = settings.serve.graph_mode
    if asked == "eager":
        return asked
    if host.kind == "cpu":
        notes.append(f"graph mode {asked} is off: vLLM's CPU backend has no device graphs")
        return "eager"
    if settings.adapts and asked != "piecewise" and not settings.adaptive.full_graph:
        notes.append(f"graph mode {asked} becomes piecewise while gamma adapts; --adaptive-full-graph keeps it")
        return "piecewise"
    return asked


def _asynchronous(settings: Settings, host: Host, notes: list[str]) -> bool | None:
    if settings.serve.method in ("ngram", "suffix"):
        return None
    if not settings.serve.async_scheduling:
        return False
    if host.kind == "cpu":
        notes.append("asynchronous scheduling is off: vLLM's CPU backend schedules synchronously")
        return False
    if settings.adapts and not settings.adaptive.async_:
        notes.append("scheduling is synchronous while gamma adapts; --adaptive-async keeps it asynchronous")
        return False
    return True
