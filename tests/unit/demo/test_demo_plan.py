import pytest

from vllm_hust_vspec.demo.plan import ADAPTIVE, CELLS, FIXED, QUICK, TARGET, Cell, Clock, gamma_of, load, order


def test_all_kinds_at_all_concurrencies_are_measured() -> None:
    assert len(CELLS) == 15
    assert {cell.concurrency for cell in CELLS} == {1, 8, 32}


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_target_and_adaptive_are_repeated_mirrored(rounds: int) -> None:
    runs = order(rounds)
    pair = [mode for mode in runs if mode in (TARGET, ADAPTIVE)]
    first = [TARGET, ADAPTIVE, ADAPTIVE, TARGET, ADAPTIVE, TARGET, TARGET, ADAPTIVE]
    assert runs[:4] == first[:4]
    assert runs[4:8] == list(FIXED)
    assert pair == [*first, *first[4:], *first[:4], *first][: 8 * rounds]
    assert all(runs.count(mode) == rounds for mode in FIXED)


def test_pinned_gammas() -> None:
    assert [gamma_of(mode) for mode in FIXED] == [1, 2, 3, 4]
    assert gamma_of(TARGET) is None
    assert gamma_of(ADAPTIVE) is None


@pytest.mark.parametrize("concurrency", [1, 8, 32])
@pytest.mark.parametrize("speed", [5.0, 60.0, 800.0])
def test_a_load_fills_every_slot_and_fits_the_context(concurrency: int, speed: float) -> None:
    made = load(Cell("story", concurrency), speed, 2.5)
    assert made.requests >= concurrency
    assert made.requests % concurrency == 0
    assert 16 <= made.tokens <= 160


def test_a_load_takes_about_its_time() -> None:
    made = load(Cell("story", 8), 400.0, 3.0)
    assert made.requests * made.tokens / 400.0 == pytest.approx(3.0, rel=0.05)


def test_time_lost_in_one_run_is_taken_from_the_later_ones() -> None:
    now = [0.0]
    clock = Clock(QUICK, 10, lambda: now[0])
    before = clock.seconds_per_run()
    now[0] += 3 * before
    clock.done(1)
    assert clock.seconds_per_run() < before
    now[0] += 10_000
    assert clock.seconds_per_run() == 0.0


def test_the_clock_says_when_the_time_is_used_up() -> None:
    now = [0.0]
    clock = Clock(QUICK, 10, lambda: now[0])
    now[0] = QUICK.seconds - 1
    assert not clock.late()
    now[0] = QUICK.seconds + 1
    assert clock.late()


def test_quick_ends_within_eight_minutes() -> None:
    assert QUICK.seconds <= 8 * 60 - 30
