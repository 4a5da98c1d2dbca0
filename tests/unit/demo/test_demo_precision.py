from pathlib import Path

import pytest

from vllm_hust_vspec.demo.precision import processor, serving_dtype

X86 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse2 avx2 {more}\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("told", "dtype"),
    [
        (X86.format(more="avx512f avx512_bf16"), "bfloat16"),
        (X86.format(more="avx512f"), "bfloat16"),
        (X86.format(more=""), "float32"),
        (X86.format(more="avx512_vnni_like"), "float32"),
        ("processor\t: 0\nFeatures\t: fp asimd sve bf16\n", "bfloat16"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "float32"),
        ("", "bfloat16"),
    ],
)
def test_bf16_serves_where_the_processor_computes_in_it(tmp_path: Path, told: str, dtype: str) -> None:
    (tmp_path / "cpuinfo").write_text(told)
    assert serving_dtype(tmp_path / "cpuinfo") == dtype


def test_a_system_without_cpuinfo_serves_the_checkpoints_own_precision(tmp_path: Path) -> None:
    assert serving_dtype(tmp_path / "none") == "bfloat16"


def test_the_processor_is_named(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(X86.format(more=""))
    assert processor(tmp_path / "cpuinfo") == "AMD EPYC"
    assert isinstance(processor(tmp_path / "none"), str)
