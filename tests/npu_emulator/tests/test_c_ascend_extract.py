"""Reading operator signatures out of a vLLM-Ascend source tree or archive."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import torch_npu.c_ascend.extract as extract

BINDING = r"""
TORCH_LIBRARY_EXPAND(_C_ascend, ops)
{
    ops.def("plain(Tensor x, float scale=1.0) -> Tensor");
    // ops.def("commented_out(Tensor x) -> Tensor");
    /* ops.def("also_commented(Tensor x) -> Tensor"); */
    ops.def(
        "split_over_lines(Tensor x, "  // a remark
        "                 str layout=\"TND\", str url='a//b') -> "
        "(Tensor a, Tensor b)");
    ops.def("no_signature", &no_signature);
    ops.impl("plain", torch::kPrivateUse1, &plain);
}
"""
EXPECTED = [
    "plain(Tensor x, float scale=1.0) -> Tensor",
    "split_over_lines(Tensor x, str layout=\"TND\", str url='a//b') -> (Tensor a, Tensor b)",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    binding = tmp_path / "checkout" / extract.BINDING
    binding.parent.mkdir(parents=True)
    binding.write_text(BINDING)
    return tmp_path / "checkout"


def test_signatures_are_joined_unescaped_and_comments_left_out() -> None:
    assert list(extract.signatures(BINDING)) == EXPECTED


def test_an_archive_and_a_checkout_give_the_same_list(checkout: Path, tmp_path: Path) -> None:
    archive = tmp_path / "vllm_ascend-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        data = BINDING.encode()
        member = tarfile.TarInfo(f"vllm_ascend-1/{extract.BINDING}")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    for source in (checkout, archive):
        output = tmp_path / "made" / f"{source.name}.txt"
        assert extract.main([str(source), str(output)]) == 0
        assert output.read_text().splitlines() == EXPECTED


def test_a_folder_without_sources_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main([str(tmp_path), str(tmp_path / "out.txt")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(tmp_path) in message
    assert "checkout" in message
    assert not (tmp_path / "out.txt").exists()


def test_it_runs_as_a_script_without_torch(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", extract.__file__, str(checkout), str(tmp_path / "out.txt")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("2 signatures")
