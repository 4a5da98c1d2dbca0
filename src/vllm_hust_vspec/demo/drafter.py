"""Who drafts in the demo: n-grams, or a trained drafter of the checkout beside the target's tokenizer."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from vllm_hust_vspec.demo.checkpoint import damage, seal, sha256
from vllm_hust_vspec.demo.store import Say, demo_home, keeping, put, scratch
from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher import safetensors_size

DRAFTS = {
    "ngram": "n-gram drafts",
    "draft": "drafts of a 2-layer draft model",
    "eagle": "drafts of an EAGLE head",
}
DEFAULT = "ngram"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_WHAT = "the demo's drafter"
_ROOM = 80 << 20  # bytes: the largest drafter twice, and the tokenizer


@dataclass(frozen=True, slots=True)
class Drafter:
    """method: a key of DRAFTS. directory: what vLLM loads; None for n-grams."""

    method: str
    directory: Path | None = None


def checkout() -> Path | None:
    """The checkout that this package runs from; None where it is installed without one."""
    source = Path(__file__).resolve().parents[2]
    return source.parent if source.name == "src" and (source.parent / "pyproject.toml").is_file() else None


def find(method: str, root: Path | None) -> Path | None:
    """The checkout's folder of this method's drafter, looked through; None for n-grams, which have none.

    root: the checkout, None without one. Raises UserError, one line, where a file is missing or damaged.
    """
    if method == "ngram":
        return None
    if root is None:
        raise UserError(f"--method {method}: its drafter comes with the checkout; run ./run.sh demo there")
    folder = root / "demo" / method
    for name in (CONFIG, WEIGHTS):
        wrong = _fault(folder / name)
        if wrong is not None:
            raise UserError(
                f"{folder / name} {wrong}; restore it with `git checkout -- demo/{method}`, or get the checkout again"
            )
    return folder


def prepare_drafter(method: str, source: Path | None, target: Path, say: Say, home: Path | None = None) -> Drafter:
    """The drafter as vLLM loads it: the files of `source` with the tokenizer of `target`, made once and checked since.

    source: what `find` gave; target: the prepared target. Raises UserError, one line, where it cannot be kept.
    """
    if source is None:
        return Drafter(method)
    home = home or demo_home()
    directory = home / f"{method}-drafter"
    files = [source / CONFIG, source / WEIGHTS, *(target / name for name in TOKENIZER)]
    with keeping(home, _WHAT, _ROOM):
        origin = " ".join(sha256(file) for file in files)
        wrong = damage(directory, origin)
        if wrong is not None:
            say(f"preparing the drafter in {directory}" + (f": {wrong}" if directory.exists() else ""))
            with scratch(home, _WHAT, _ROOM) as work:
                made = work / method
                made.mkdir()
                for file in files:
                    shutil.copyfile(file, made / file.name)
                seal(made, origin)
                put(made, directory)
    return Drafter(method, directory)


def _fault(file: Path) -> str | None:
    """What is wrong with a file of a drafter, to be read after its name; None where it is whole."""
    try:
        size = file.stat().st_size
        if file.name == CONFIG:
            return None if isinstance(json.loads(file.read_text(encoding="utf-8")), dict) else "is no JSON object"
        promised = safetensors_size(file, size)
    except FileNotFoundError:
        return "is missing"
    except ValueError:
        return "is no JSON"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if promised is None:
        return "is no safetensors file, or cut short"
    return None if promised == size else f"has {size:,} bytes, and its header promises {promised:,}"
