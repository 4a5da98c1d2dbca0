"""Read the signatures of vLLM-Ascend's compiled operators out of its sources.

usage: python extract.py SDIST_OR_CHECKOUT OUTPUT
       python -m torch_npu.c_ascend.extract SDIST_OR_CHECKOUT OUTPUT

SDIST_OR_CHECKOUT is a source archive of a release (.tar.gz) or a folder with its sources. OUTPUT gets one signature a
line. The emulator reads it at run time; it is made at set-up from the sources of the installed release and is not
committed. Needs no torch.
"""

import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

BINDING = "csrc/torch_binding.cpp"
LITERAL = r'"(?:[^"\\]|\\.)*"'
DEFINITION = re.compile(rf"\bops\.def\(\s*((?:{LITERAL}\s*)+)")
ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": " ", r"\t": " "}


def read_binding(source: Path) -> str:
    """The C++ file that declares the operators. Raises FileNotFoundError, naming source, if there is none."""
    if source.is_dir():
        binding = source / BINDING
        if not binding.is_file():
            raise FileNotFoundError(f"{source} has no {BINDING}; give a vLLM-Ascend checkout or source archive")
        return binding.read_text()
    with tarfile.open(source) as archive:
        for member in archive:
            if member.name.endswith(BINDING) and (file := archive.extractfile(member)) is not None:
                return file.read().decode()
    raise FileNotFoundError(f"{source} holds no {BINDING}; give a vLLM-Ascend checkout or source archive")


def signatures(binding: str) -> Iterator[str]:
    """Each operator signature that the C++ text defines, on one line; names without a signature are left out."""
    code = re.sub(rf"({LITERAL})|//[^\n]*|/\*.*?\*/", lambda match: match[1] or " ", binding, flags=re.DOTALL)
    for definition in DEFINITION.finditer(code):
        joined = "".join(literal[1:-1] for literal in re.findall(LITERAL, definition[1]))
        text = re.sub(r"\\.", lambda escape: ESCAPES.get(escape[0], escape[0]), joined)
        if "(" in text:
            yield re.sub(r"\s+", " ", text).strip()


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, output = Path(arguments[0]), Path(arguments[1])
    try:
        found = sorted(set(signatures(read_binding(source))))
    except (OSError, tarfile.TarError) as error:
        print(f"extract: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"extract: no operator signature in {BINDING} of {source}", file=sys.stderr)
        return 2
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(found) + "\n")
    print(f"{len(found)} signatures of {source.name} in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
