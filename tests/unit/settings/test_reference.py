"""The reference page follows the schema."""

from pathlib import Path

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.settings import OPTIONS, reference

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(monkeypatch):
    def call(*arguments: str) -> None:
        monkeypatch.setattr("sys.argv", ["reference", *arguments])
        reference.main()

    return call


def test_the_committed_page_is_current():
    assert (ROOT / reference.PAGE).read_text(encoding="utf-8") == reference.render(), f"run {reference.COMMAND}"


def test_every_option_has_one_row():
    page = reference.render()
    for spec in OPTIONS.values():
        assert page.count(f"| `{spec.flag}` |") == 1, spec.flag


def test_check_passes_on_a_written_page_and_ends_on_a_changed_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    with pytest.raises(UserError, match="not current"):
        run("--check")
    run()
    run("--check")
    page = tmp_path / reference.PAGE
    page.write_text(page.read_text() + "edited\n")
    with pytest.raises(UserError, match=r"docs/options\.md is not current; run python -m"):
        run("--check")


def test_outside_a_checkout_and_with_unknown_arguments_it_ends(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="top of a checkout"):
        run()
    with pytest.raises(UserError, match="--chek: unknown argument"):
        run("--chek")
