"""The pages say the same in both languages, and point to what is there."""

import re

import pytest
from checkouts import REPOSITORY

GUIDES = [f"docs/{name}.md" for name in ("acceptance", "adaptive", "demo-models", "emulated-npu", "simulator")]
PAGES = ["README.md", "README.zh.md", "CHANGELOG.md", "docs/architecture.md", "docs/testing.md", *GUIDES]


def commands(page: str) -> list[str]:
    """The lines of a page's shell blocks, without their comments."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for raw in block.splitlines() if (line := raw.partition("#")[0].strip())]


def test_both_readmes_show_the_same_commands_and_begin_with_the_two() -> None:
    english = commands("README.md")
    assert english[:2] == ["./run.sh demo", "./manage.sh test"]
    assert commands("README.zh.md") == english


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https://)([^)#]+)\)", text):
        assert (REPOSITORY / page).parent.joinpath(target).is_file(), f"{page} links to {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("README", "docs/testing"))])
def test_every_script_that_a_page_names_is_there_and_runs(page: str) -> None:
    scripts = {word for line in commands(page) for word in line.split() if word.startswith("./")}
    assert scripts
    for script in scripts:
        assert (REPOSITORY / script).stat().st_mode & 0o111, f"{page} names {script}"


def test_every_option_in_a_readme_exists() -> None:
    options = (REPOSITORY / "docs" / "options.md").read_text(encoding="utf-8")
    elsewhere = {"--dry-run", "--json", "--config", "--seed"}
    for page in ("README.md", "README.zh.md"):
        named = set(re.findall(r"--[a-z][a-z0-9-]+", (REPOSITORY / page).read_text(encoding="utf-8")))
        known = {flag.replace("--no-", "--") for flag in named} - elsewhere
        assert {flag for flag in known if f"`{flag}`" not in options} == set()
