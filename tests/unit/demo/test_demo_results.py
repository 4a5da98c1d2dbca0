import json
from typing import Any

import pytest
from demo_results import cell_result, divergence, results

from vllm_hust_vspec.demo.plan import ADAPTIVE, CELLS, FIXED, MODES, TARGET
from vllm_hust_vspec.demo.results import Speculation, geometric_mean


def _counters(histogram: dict[str, int], **sums: int) -> dict[str, Any]:
    return {"ok": True, "gamma_histogram": histogram, "policy": "online", **sums}


def test_counts_of_a_run_are_the_difference_of_two_readings() -> None:
    before = _counters({"0": 5, "4": 10}, steps=15, proposed=40, accepted=20, verifications=10, switches=1)
    after = _counters({"0": 5, "2": 3, "4": 12}, steps=20, proposed=54, accepted=30, verifications=15, switches=3)
    run = Speculation.between(before, after)
    assert run.histogram == {2: 3, 4: 2}
    assert (run.steps, run.proposed, run.accepted, run.verifications, run.switches) == (5, 14, 10, 5, 2)
    assert run.acceptance_length == pytest.approx(3.0)


def test_without_a_verified_draft_there_is_no_acceptance_length() -> None:
    assert Speculation({0: 7}).acceptance_length is None


def test_counts_of_repeats_add_up() -> None:
    total = Speculation({0: 1, 2: 2}, steps=3, accepted=4) + Speculation({2: 1, 3: 1}, steps=2, accepted=1)
    assert total.histogram == {0: 1, 2: 3, 3: 1}
    assert (total.steps, total.accepted) == (5, 5)


def test_ratios_carry_the_spread_of_the_pairs() -> None:
    result = cell_result(CELLS[0])
    ratio = result.to_target()
    assert (ratio.least, ratio.greatest) == (pytest.approx(1.5), pytest.approx(1.7))
    assert ratio.least < ratio.mean < ratio.greatest
    assert result.best_fixed() == "fixed-4"
    assert result.to_best_fixed().greatest == pytest.approx(170 / 140)


def test_the_json_has_every_cell_and_key_that_is_promised() -> None:
    told = json.loads(json.dumps(results(explained=2, unexplained=1).as_json()))
    assert set(told) >= {"cells", "host"}
    assert len(told["cells"]) == 15 * len(MODES)
    kinds = {
        "prompts": str, "concurrency": int, "mode": str, "tokens_per_s": float, "gamma_histogram": dict,
        "identical_to_target_only": bool, "divergences": int, "unexplained_divergences": int,
    }  # fmt: skip
    for cell in told["cells"]:
        assert cell["mode"] in MODES
        assert cell["acceptance_length"] is None or isinstance(cell["acceptance_length"], float)
        for key, kind in kinds.items():
            assert isinstance(cell[key], kind), f"{key} of {cell['mode']} is {cell[key]!r}"
    first = {cell["mode"]: cell for cell in told["cells"][: len(MODES)]}
    assert first[TARGET]["acceptance_length"] is None
    assert first[TARGET]["gamma_histogram"] == {}
    assert first["fixed-3"]["gamma_histogram"] == {"3": 50}
    assert first[ADAPTIVE]["gamma_histogram"] == {"2": 200}
    assert (first["fixed-2"]["divergences"], first["fixed-2"]["unexplained_divergences"]) == (3, 1)
    assert not first["fixed-2"]["identical_to_target_only"]
    assert first["fixed-1"]["identical_to_target_only"]


def test_an_impossible_gap_is_null_in_json_not_infinity() -> None:
    made = results()
    made.cells[0].judged.append(divergence(CELLS[0], gap=float("inf"), explained=False))
    told = json.dumps(made.as_json(), allow_nan=False)
    assert json.loads(told)["divergences"][0]["gap_nats"] is None


def test_unexplained_divergences_are_counted_over_all_cells() -> None:
    made = results(unexplained=2, explained=1)
    made.cells[-1].judged.append(divergence(CELLS[-1], ADAPTIVE, gap=2.0, explained=False))
    assert made.unexplained == 3


def test_the_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_the_modes_of_the_json_are_those_of_the_issue() -> None:
    assert list(MODES) == ["target-only", *FIXED, "adaptive"]
    assert list(FIXED) == ["fixed-1", "fixed-2", "fixed-3", "fixed-4"]
