"""A missing or truncated model is found before anything loads."""

import json
import struct

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.models import check_model


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        check_model(str(path), "target model")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"target model {path}: ")
    return str(caught.value)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_whole_model_passes(model, shards):
    check_model(str(model(shards=shards)), "target model")


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-14B-Instruct", "gpt2", "org/name.v2"])
def test_a_repository_id_is_left_to_vllm(name):
    check_model(name, "target model")


@pytest.mark.parametrize("name", ["/no/such/model", "./model", "../x", "~/nothing-here", "a/b/c"])
def test_a_missing_directory_is_named(name, monkeypatch, tmp_path):
    below = tmp_path / "empty" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)  # what lies beside the checkout must not count
    assert "no such directory" in refusal(name)


def test_a_home_relative_model_is_found(model, monkeypatch, tmp_path):
    model("m")
    monkeypatch.setenv("HOME", str(tmp_path))
    check_model("~/m", "target model")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json is missing"),
        (lambda m: (m / "config.json").write_text("{"), "config.json cannot be read as JSON"),
        (lambda m: (m / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda m: (m / "config.json").write_bytes(b"\xff"), "config.json cannot be read as JSON"),
        (lambda m: (m / "model.safetensors").unlink(), "no weights"),
        (lambda m: (m / "model.safetensors").write_bytes(b""), "model.safetensors is empty"),
        (lambda m: (m / "model.safetensors").write_bytes(b"\x01"), "not a safetensors file, or cut short"),
        (lambda m: (m / "model.safetensors").write_bytes(b"x" * 400), "not a safetensors file, or cut short"),
        (lambda m: (m / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]"), "not a safetensors file"),
        (
            lambda m: (m / "model.safetensors").write_bytes((m / "model.safetensors").read_bytes()[:-8]),
            "model.safetensors is cut short",
        ),
        (
            lambda m: (m / "model.safetensors").rename(m / "model-00001-of-00004.safetensors"),
            "1 of 4 weight files are there",
        ),
    ],
)
def test_a_damaged_model_is_named_with_its_file(model, damage, problem):
    path = model()
    damage(path)
    assert problem in refusal(path)


def test_every_shard_of_the_index_must_be_there_and_whole(model):
    path = model(shards=3)
    shard = path / "model-00002-of-00003.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    assert f"{shard.name} is cut short ({len(whole) - 1:,} of {len(whole):,} bytes)" in refusal(path)
    shard.unlink()
    assert f"{shard.name} is missing" in refusal(path)


@pytest.mark.parametrize("index", ["{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "x"])
def test_a_broken_index_is_named(model, index):
    path = model()
    (path / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json" in refusal(path)


def test_a_file_is_no_model_directory(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"x")
    assert "not a model directory" in refusal(tmp_path / "weights.safetensors")


def test_older_weights_count_as_weights(model):
    path = model()
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"x")
    check_model(str(path), "target model")
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "pytorch_model-2.bin"}}))
    assert "pytorch_model-2.bin is missing" in refusal(path)
