import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vllm_hust_vspec.demo import drafter
from vllm_hust_vspec.demo.drafter import DRAFTS, Drafter, checkout, find, prepare_drafter
from vllm_hust_vspec.errors import UserError

REPOSITORY = Path(__file__).parents[3]
TRAINED = [method for method in DRAFTS if method != "ngram"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with both drafters."""
    for method in TRAINED:
        folder = tmp_path / "checkout" / "demo" / method
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        save_file({"weight": torch.arange(64.0)}, folder / "model.safetensors")
        (folder / "README.md").write_text("a card")
    return tmp_path / "checkout"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"):
        (folder / name).write_text(f"the target's {name}")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _refusal(method: str, root: Path | None) -> str:
    with pytest.raises(UserError) as caught:
        find(method, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_n_grams_need_no_drafter_and_no_checkout(target: Path, home: Path) -> None:
    assert find("ngram", None) is None
    assert prepare_drafter("ngram", None, target, pytest.fail, home) == Drafter("ngram")
    assert not home.exists()


@pytest.mark.parametrize("method", TRAINED)
def test_without_a_checkout_it_is_said_where_the_drafter_is(method: str) -> None:
    assert _refusal(method, None) == f"--method {method}: its drafter comes with the checkout; run ./run.sh demo there"


def test_this_checkout_is_found_and_an_installed_package_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkout() == REPOSITORY
    installed = tmp_path / "lib/python3.11/site-packages/vllm_hust_vspec/demo/drafter.py"
    monkeypatch.setattr(drafter, "__file__", str(installed))
    assert checkout() is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("method", TRAINED)
def test_a_missing_file_is_named_with_its_fix(method: str, name: str, root: Path) -> None:
    file = root / "demo" / method / name
    file.unlink()
    assert _refusal(method, root) == (
        f"{file} is missing; restore it with `git checkout -- demo/{method}`, or get the checkout again"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is no safetensors file, or cut short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is no safetensors file"),
        (None, "and its header promises"),
    ],
)
def test_damaged_weights_are_named_with_their_fix(content: bytes | None, told: str, root: Path) -> None:
    file = root / "demo/draft/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] if content is None else content)
    refusal = _refusal("draft", root)
    assert refusal.startswith(f"{file} ")
    assert told in refusal
    assert "git checkout -- demo/draft" in refusal


@pytest.mark.parametrize(("content", "told"), [("{", "is no JSON;"), ("[]", "is no JSON object;")])
def test_a_damaged_configuration_is_named(content: str, told: str, root: Path) -> None:
    (root / "demo/eagle/config.json").write_text(content)
    assert told in _refusal("eagle", root)


@pytest.mark.parametrize("method", TRAINED)
def test_the_drafter_is_put_beside_the_targets_tokenizer_once(
    method: str, root: Path, target: Path, home: Path
) -> None:
    said: list[str] = []
    source = find(method, root)
    assert source is not None
    made = prepare_drafter(method, source, target, said.append, home)
    assert made == prepare_drafter(method, source, target, said.append, home)
    assert len(said) == 1
    assert made.directory is not None
    for name in ("config.json", "model.safetensors"):
        assert (made.directory / name).read_bytes() == (source / name).read_bytes()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (made.directory / name).read_text() == f"the target's {name}"
    assert not list(home.glob(".work-*"))


def test_a_new_or_damaged_drafter_is_prepared_anew(root: Path, target: Path, home: Path) -> None:
    said: list[str] = []
    source = root / "demo/draft"
    made = prepare_drafter("draft", source, target, said.append, home).directory
    assert made is not None
    os.truncate(made / "model.safetensors", 3)
    prepare_drafter("draft", source, target, said.append, home)
    assert "model.safetensors has 3 bytes" in said[-1]
    save_file({"weight": torch.arange(65.0)}, source / "model.safetensors")
    prepare_drafter("draft", source, target, said.append, home)
    assert (made / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    assert len(said) == 3


def test_a_preparation_that_fails_leaves_what_was_there(
    root: Path, target: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = root / "demo/draft"
    made = prepare_drafter("draft", source, target, lambda _: None, home).directory
    assert made is not None
    before = (made / "model.safetensors").read_bytes()
    save_file({"weight": torch.arange(65.0)}, source / "model.safetensors")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(drafter, "seal", full)
    with pytest.raises(UserError, match=r"no room left in .* for the demo's drafter"):
        prepare_drafter("draft", source, target, lambda _: None, home)
    assert (made / "model.safetensors").read_bytes() == before
    assert not list(home.glob(".work-*"))


@pytest.mark.parametrize("method", TRAINED)
def test_the_drafters_of_this_checkout_are_whole(method: str) -> None:
    assert find(method, REPOSITORY) == REPOSITORY / "demo" / method
