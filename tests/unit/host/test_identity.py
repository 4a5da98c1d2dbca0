"""What makes one run's state fit another."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.host.identity import check_measured_on, identity_of, model_name
from vllm_hust_vspec.settings.profile_file import MeasuredOn, read_profile

EXAMPLE = Path(__file__).parents[3] / "profiles" / "example.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    return folder


def test_a_moved_model_keeps_its_name_and_a_retrained_one_does_not(model: Path, tmp_path: Path) -> None:
    name = model_name(str(model), None)
    assert name.startswith("qwen@")
    moved = tmp_path / "elsewhere" / "qwen"
    shutil.copytree(model, moved)
    assert model_name(str(moved), None) == name
    (moved / "model.safetensors").write_bytes(b"Weights" * 100)
    assert model_name(str(moved), None) != name


def test_a_repository_is_named_with_its_revision() -> None:
    assert model_name("org/name", None) == "org/name@main"
    assert model_name("org/name", "v2") == "org/name@v2"


def config(model: Path, **changes: Any) -> Any:
    target = Thing(model=str(model), revision=None, dtype="torch.float16", quantization=None, enforce_eager=False)
    spec = Thing(draft_model_config=Thing(model=str(model), revision=None), prompt_lookup_min=2, prompt_lookup_max=4)
    return Thing(
        model_config=target,
        speculative_config=spec,
        parallel_config=Thing(tensor_parallel_size=changes.get("tensor_parallel_size", 1)),
        scheduler_config=Thing(async_scheduling=changes.get("async_scheduling", False)),
        compilation_config=Thing(cudagraph_mode=changes.get("cudagraph_mode")),
    )


def test_each_fact_that_changes_times_or_acceptance_makes_another_identity(model: Path) -> None:
    def found(method: str = "draft_model", max_gamma: int = 4, policy: str = "online", **changes: Any) -> Any:
        return identity_of(config(model, **changes), method=method, max_gamma=max_gamma, policy=policy)

    assert found() == found()
    others = [
        found(method="ngram"), found(max_gamma=3), found(policy="profile"), found(tensor_parallel_size=2),
        found(async_scheduling=True), found(cudagraph_mode=Thing(name="FULL")),
    ]  # fmt: skip
    assert all(other != found() for other in others)
    assert (found()["host"], found()["dtype"]) == ("cpu", "float16")
    assert "vllm" in str(found()["versions"])
    assert "threads" in str(found()["device"])


def test_a_profile_of_another_server_is_refused_and_one_that_says_nothing_is_warned_of() -> None:
    ours: dict[str, str | int] = {
        "target": "qwen@12", "drafter": "tiny@34", "dtype": "float16", "host": "npu", "device": "Ascend A2",
        "tensor_parallel_size": 2,
    }  # fmt: skip
    profile, path = read_profile(EXAMPLE), Path("p.json")
    assert "does not say what it was measured on" in str(check_measured_on(profile, path, ours))

    def on(**facts: Any) -> Any:
        return check_measured_on(profile.model_copy(update={"measured_on": MeasuredOn(**facts)}), path, ours)

    assert on(**ours, source="bench") is None
    assert on(target="qwen") is None
    for key in ours:
        with pytest.raises(UserError, match=f"measured on {key} "):
            on(**ours | {key: 4 if key == "tensor_parallel_size" else "another"})
