"""SIMPLE-Selection and our side of figures 15 and 16 against brute force."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.harness import Effort
from benchmarks.paper import fig15, fig16, selecting
from benchmarks.paper.logs import batches, generated
from benchmarks.paper.selecting import WARM, Door, Got, Ours, OursSums, need, run_ours, run_simple
from benchmarks.paper.simple_selection import GROUP, WAYS, Matches, SimpleSelection, SimpleSums, draw

SIZE = 700
LOG = generated(SIZE * (WARM + 3), 3, drift=True).a
PRICE, STORE = LOG["price"], LOG["store_id"]
FEW = draw(20, PRICE, STORE, 1)
MANY = draw(2 * GROUP + 9, PRICE, STORE, 2)
INTERVALS = batches(LOG, SIZE)


def always() -> bool:
    return True


def steps(number: int) -> Callable[[], bool]:
    """Allows so many steps."""
    left = iter([True] * number)
    return lambda: next(left, False)


def by_query(matches: Matches, queries: int) -> list[list[int]]:
    return [[int(n) for q, found in matches if q == query for n in found] for query in range(queries)]


def test_selections_keep_five_to_ten_percent_and_no_two_are_alike():
    kept = [MANY.truth(PRICE, STORE, query).mean() for query in range(len(MANY))]
    assert min(kept) >= 0.05
    assert max(kept) <= 0.10
    assert len({MANY.where(query) for query in range(len(MANY))}) == len(MANY)
    assert ["store_id" in MANY.where(query) for query in range(10)] == [False, False, False, False, True] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", [FEW, MANY], ids=["few", "many"])
def test_with_time_enough_everything_is_found(way, asked):
    simple = SimpleSelection(asked, way)
    kept: Matches = []
    simple.take(PRICE, STORE, 1000, always, kept)
    want = [(np.flatnonzero(asked.truth(PRICE, STORE, q)) + 1000).tolist() for q in range(len(asked))]
    assert by_query(kept, len(asked)) == want
    assert simple.came.tolist() == list(map(len, want))
    assert set(simple.seen.tolist()) == {len(PRICE)}


@pytest.mark.parametrize("way", WAYS)
def test_when_time_is_out_later_tuples_are_lost_to_those_that_had_no_turn(way):
    simple = SimpleSelection(MANY, way)
    kept: Matches = []
    groups = len(simple.groups)
    assert (groups, 2 * simple.piece < len(PRICE)) == (3, True)
    simple.take(PRICE, STORE, 0, steps(groups + 1), kept)
    shown = np.repeat([2, 1, 1], [end - first for first, end in simple.groups]) * simple.piece
    assert simple.seen.tolist() == shown.tolist()
    for query, found in enumerate(by_query(kept, len(MANY))):
        assert found == np.flatnonzero(MANY.truth(PRICE, STORE, query)[: shown[query]]).tolist()


def test_the_turn_goes_on_in_the_next_interval():
    simple = SimpleSelection(MANY, "tuples")
    order = [[first for _, _, first, _ in simple.steps(simple.piece, steps(2))] for _ in range(3)]
    one, two, three = (first for first, _ in simple.groups)
    assert order == [[one, two], [three, one], [two, three]]


@pytest.mark.parametrize("way", WAYS)
def test_sums_are_those_of_the_tuples_found(way):
    adding = SimpleSums(MANY, way)
    adding.take(PRICE, STORE, 0, always)
    for query in range(len(MANY)):
        kept = PRICE[MANY.truth(PRICE, STORE, query)]
        assert adding.counts[query] == len(kept)
        assert adding.sums[query] == pytest.approx(kept.sum())


def test_ours_finds_what_brute_force_finds():
    ours = Ours(FEW)
    try:
        for batch in INTERVALS:
            price, store = batch["price"], batch["store_id"]
            taken = ours.take(batch, 1.0)
            want = [np.flatnonzero(FEW.truth(price, store, query)) for query in range(len(FEW))]
            assert taken.came.tolist() == list(map(len, want))
            assert taken.found.tolist() == np.concatenate(want).tolist()
    finally:
        ours.close()


def test_ours_sums_up_what_brute_force_finds():
    ours = OursSums(FEW)
    try:
        for batch in INTERVALS:
            price, store = batch["price"], batch["store_id"]
            taken = ours.take(batch, 1.0)
            want = [price[FEW.truth(price, store, query)] for query in range(len(FEW))]
            assert taken.came.tolist() == list(map(len, want))
            np.testing.assert_allclose(taken.sums, [one.sum() for one in want])
    finally:
        ours.close()


def test_both_sides_agree_when_there_is_time_for_all():
    simple = need(FEW, INTERVALS, sums=True)
    ours = run_ours(FEW, INTERVALS, None, whole=True, sums=True)
    assert ours.came.tolist() == simple.got.came.tolist()
    assert ours.seen.tolist() == simple.got.seen.tolist() == [3 * SIZE] * len(FEW)
    np.testing.assert_allclose(ours.sums, simple.got.sums)
    assert fig15.percent(ours, simple.got) == 100


def test_without_time_nothing_is_found_and_nothing_is_made_up():
    for got in (run_ours(FEW, INTERVALS, 0.0, whole=False), run_simple(FEW, INTERVALS, 0.0, "tuples")):
        assert got.came.sum() == 0
        assert got.seen.sum() == 0


def test_the_door_saves_nothing_up_and_is_closed_while_there_is_work_left():
    door = Door(budget=1000.0)
    door.passed(200.0)
    assert door.behind == 0
    opened = []
    for _ in range(6):
        opened.append(door.open)
        door.passed(2500.0 if door.open else 0.0)
    assert opened == [True, False, True, False, False, True]


def test_errors_of_estimates():
    everything = Got(np.array([10, 20]), np.array([100.0, 60.0]), np.array([100, 100]))
    half = Got(np.array([5, 0]), np.array([55.0, 0.0]), np.array([50, 50]))
    found = fig16.errors({"all": everything, "half": half}, everything, 100)
    assert {a: e["all"] for a, e in found.items()} == {"avg": 0, "sum, scaled": 0, "sum, as seen": 0}
    assert found["avg"]["half"] == pytest.approx((1 + 9) / 2)
    assert found["sum, scaled"]["half"] == pytest.approx((10**2 + 60**2) / 2)
    assert found["sum, as seen"]["half"] == pytest.approx((45**2 + 60**2) / 2)


@pytest.mark.deep("runs a figure of the paper, small")
@pytest.mark.parametrize("figure", [fig15, fig16], ids=["fig15", "fig16"])
def test_a_run_has_a_row_for_every_load(figure, monkeypatch):
    def small(seed: int, number: int) -> list[dict[str, np.ndarray]]:
        return batches(generated(300 * (WARM + number), seed, drift=False).a, 300)

    monkeypatch.setattr(figure, "intervals", small)
    outcome = figure.run(Effort(quick=True), [1, 2])
    assert [len(row) for row in outcome.rows] == [len(outcome.header)] * len(outcome.rows)
    assert [plot.name for plot in outcome.plots] == [f"{outcome.figure}a", f"{outcome.figure}b"]
    for plot in outcome.plots:
        for curve in plot.curves:
            assert [len(values) for values in curve.y] == [2] * len(curve.x)
    assert len(outcome.metrics) == (5 if figure is fig15 else 9)
    assert all(goal.met is not None for goal in outcome.goals)


def test_intervals_are_cut_from_the_log(monkeypatch):
    monkeypatch.setattr(selecting, "complete_journey", lambda rows, seed: generated(rows, seed, drift=False))
    made = selecting.intervals(1, 3, 50)
    assert [len(batch["ts"]) for batch in made] == [50] * (3 + WARM)
