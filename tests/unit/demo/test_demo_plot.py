from pathlib import Path

import pytest
from demo_results import results

from vllm_hust_vspec.demo import plot


@pytest.mark.parametrize("method", ["ngram", "eagle"])
def test_the_plot_is_a_png_and_leaves_nothing_beside_it(method: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    made = results(explained=1)
    made.host["method"] = method
    plot.draw(made, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [path]
