from pathlib import Path

from demo_results import results

from vllm_hust_vspec.demo import plot


def test_the_plot_is_a_png_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    plot.draw(results(explained=1), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [path]
