"""Builds the C++ half of the emulated device; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).parent
CODE = sorted(HERE.glob("csrc/*.cpp"))

# One unit for the compiler: nearly all its time goes into torch's headers, so ten files would take ten times as long.
unit = HERE / "build" / "torch_npu.cpp"
unit.parent.mkdir(exist_ok=True)
unit.write_text("".join(f'#include "../csrc/{path.name}"\n' for path in CODE), encoding="utf-8")

setup(
    ext_modules=[
        CppExtension(
            "torch_npu._native",
            [unit.relative_to(HERE).as_posix()],
            depends=[path.relative_to(HERE).as_posix() for path in (*CODE, *HERE.glob("csrc/*.h"))],
            extra_compile_args=[
                "-O2",
                "-g0",
                "-std=c++20",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-fvisibility=hidden",
            ],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
