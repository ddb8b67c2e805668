"""Moments against Python's integers, math.fsum and fractions; no order of what is done changes a bit."""

import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from promising.summaries.moments import Moments
from tests.tiers import examples

GROUPS = 5
Rows = list[tuple[int, Any]]


@pytest.fixture(autouse=True, scope="module")
def short_runs():
    """Runs of any length are added as runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("promising.summaries.moments.LONG", 0)
        yield


wholes = st.one_of(st.integers(-5, 5), st.integers(-(1 << 63), (1 << 63) - 1))
prices = st.integers(-(10**6), 10**6).map(lambda cents: cents / 100)
finite = st.one_of(
    prices, st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([-0.0, 5e-324, -1e308, 1e308])
)
doubles = st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf]))


def tuples(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(st.integers(0, GROUPS - 1), values), max_size=60)


def of(rows: Rows, kind: str, *, runs: bool = False, squares: bool = True) -> Moments:
    made = Moments(GROUPS, kind, squares=squares)
    put(made, rows, runs=runs)
    return made


def put(made: Moments, rows: Rows, *, runs: bool = False) -> None:
    ids = np.array([g for g, _ in rows], np.int32)
    values = np.array([x for _, x in rows], np.float64 if made.doubles else np.int64)
    if not runs:
        made.add(ids, values)
        return
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(GROUPS + 1))
    made.add_runs(np.arange(GROUPS, dtype=np.int32), starts, values[order])


def exact(values: list[float]) -> float:
    """The real sum, rounded once; infinite beyond doubles."""
    if any(math.isnan(x) for x in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    ends = [x for x in values if math.isinf(x)]
    if ends:
        return ends[0]
    whole = sum(map(Fraction, values), Fraction(0))
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def same(a: Moments, b: Moments) -> None:
    one, other = a.image(), b.image()
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), name
        assert np.shape(value) == np.shape(other[name]), name


def check(made: Moments, rows: Rows) -> None:
    sums, squares = made.sums(), made.squares()
    for g in range(GROUPS):
        values = [x for at, x in rows if at == g]
        assert made.count[g] == len(values)
        numbers = [x for x in values if not (made.doubles and math.isnan(x))]
        assert made.nan[g] == len(values) - len(numbers)
        if numbers:
            assert (made.least[g], made.greatest[g]) == (min(numbers), max(numbers))
        if made.doubles:
            assert np.array_equal(sums[g], exact(values), equal_nan=True)
        else:
            high, low = made.pairs()[g].tolist()
            assert (high << 32) + low == sum(values)
            assert sums[g] == float(sum(values))
        with np.errstate(over="ignore"):
            squared = (np.array(values, np.float64) * np.array(values, np.float64)).tolist()
        assert np.array_equal(squares[g], exact(squared), equal_nan=True)


@settings(max_examples=examples(300))
@example(rows=[(2, 9e307), (2, 9e307), (2, -math.inf)], runs=False)  # the finite ones alone are beyond doubles
@given(rows=tuples(doubles), runs=st.booleans())
def test_doubles_add_up_as_the_real_numbers_do(rows: Rows, runs: bool):
    check(of(rows, "float", runs=runs), rows)


@settings(max_examples=examples(100))
@given(rows=tuples(wholes), runs=st.booleans(), kind=st.sampled_from(["int", "timestamp"]))
def test_integers_are_exact(rows: Rows, runs: bool, kind: str):
    check(of(rows, kind, runs=runs), rows)


@settings(max_examples=examples(200))
@given(rows=tuples(doubles), data=st.data())
def test_no_order_or_batching_changes_a_bit(rows: Rows, data: st.DataObject):
    mixed = data.draw(st.permutations(rows))
    made, whole = Moments(GROUPS, "float"), of(rows, "float")
    while mixed:
        some = data.draw(st.integers(1, len(mixed)))
        put(made, mixed[:some], runs=data.draw(st.booleans()))
        mixed = mixed[some:]
    same(made, whole)


@settings(max_examples=examples(200))
@given(a=tuples(doubles), b=tuples(doubles), c=tuples(doubles), into=st.permutations(range(GROUPS)))
def test_merging_is_the_union_in_any_order(a: Rows, b: Rows, c: Rows, into: list[int]):
    places = np.array(into, np.int32)
    moved = [(into[g], x) for g, x in b]
    whole = of(a + moved + c, "float")
    left, right = of(a, "float"), of(c, "float")
    left.merge(of(b, "float"), places)
    left.merge(right, np.arange(GROUPS, dtype=np.int32))
    right = of(c, "float")
    right.merge(of(b, "float"), places)
    right.merge(of(a, "float"), np.arange(GROUPS, dtype=np.int32))
    same(left, whole)
    same(right, whole)


@settings(max_examples=examples(200))
@given(a=tuples(doubles), b=tuples(doubles), kind=st.just("float"))
def test_subtracting_undoes_adding(a: Rows, b: Rows, kind: str):
    made, left = of(a + b, kind), of(a, kind)
    made.subtract(of(b, kind), np.arange(GROUPS, dtype=np.int32))
    assert np.array_equal(made.count, left.count)
    assert np.array_equal(made.sums(), left.sums(), equal_nan=True)
    assert np.array_equal(made.squares(), left.squares(), equal_nan=True)
    assert (made.least <= left.least).all() and (made.greatest >= left.greatest).all()


@settings(max_examples=examples(100))
@given(rows=tuples(doubles), more=tuples(doubles), groups=st.lists(st.integers(0, GROUPS - 1), max_size=8))
def test_images_round_trip_and_live_on(rows: Rows, more: Rows, groups: list[int]):
    made = of(rows, "float")
    again = Moments.restore(made.image(), "float")
    same(made, again)
    put(again, more)
    same(again, of(rows + more, "float"))
    taken = again.take(np.array(groups, np.int64))
    assert np.array_equal(taken.sums(), again.sums()[groups], equal_nan=True)
    again.grow(GROUPS + 2)
    again.clear(np.arange(GROUPS))
    assert not again.count.any() and not again.sums().any() and len(again) == GROUPS + 2


@pytest.mark.parametrize("spread", [1, 30, 300, 1000])
def test_long_runs_are_added_in_bins(spread: int):
    """Values of few and of many orders of magnitude: where three bins are too few, digits do it."""
    rng = np.random.default_rng(spread)
    values = rng.normal(size=50_000) * 2.0 ** rng.integers(-spread, spread, 50_000)
    ids = np.sort(rng.integers(0, GROUPS, len(values)).astype(np.int32))
    made, other = Moments(GROUPS, "float"), Moments(GROUPS, "float")
    for _ in range(2):  # the second time, all digits are there
        made.add_runs(np.arange(GROUPS, dtype=np.int32), np.searchsorted(ids, np.arange(GROUPS + 1)), values)
        other.add(ids[::-1].copy(), values[::-1].copy())
    same(made, other)
    assert made.sums().tolist() == [math.fsum([*values[ids == g]] * 2) for g in range(GROUPS)]


def test_nulls_are_left_out():
    nulls = np.array([False, True, False])
    made, runs = Moments(1, "float"), Moments(1, "float")
    made.add(np.zeros(3, np.int32), np.array([1.5, 7.0, 2.0]), nulls)
    runs.add_runs(np.zeros(1, np.int32), np.array([0, 3]), np.array([1.5, 7.0, 2.0]), nulls)
    same(made, runs)
    assert (made.count[0], made.sums()[0], made.greatest[0]) == (2, 3.5, 2.0)


def test_sums_are_rounded_once_to_even_and_overflow_only_when_read():
    """Ties, the last denormal, and sums that leave the doubles and come back."""
    for values in (
        [2.0**53, 1.0],
        [2.0**53 + 2, 1.0],
        [2.0**53, 1.0, 5e-324],
        [5e-324, 5e-324, -5e-324],
        [1e308] * 40 + [-1e308] * 39,
        [1.7976931348623157e308, 9.9e291],
        [1.7976931348623157e308, 1e292],
        [-1.7976931348623157e308, -1e292],
    ):
        made = of([(0, x) for x in values], "float")
        assert made.sums()[0] == exact(values), values


def test_digits_are_carried_before_they_overflow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("promising.summaries.moments.LOOSE", 100)
    rows = [(g % GROUPS, x) for g, x in enumerate(np.random.default_rng(1).normal(size=500).tolist())]
    made = Moments(GROUPS, "float")
    for at in range(0, len(rows), 30):
        put(made, rows[at : at + 30])
    same(made, of(rows, "float"))


def test_merging_again_and_again_needs_no_more_digits():
    one = Moments(1, "float")
    one.add(np.zeros(3, np.int32), np.array([0.1, 7.25, -3e5]))
    sized, into = one.nbytes, np.zeros(1, np.int32)
    whole = Moments(1, "int")
    whole.add(into, np.array([-(1 << 63)]))
    for _ in range(50):
        for kind, known in (("float", one), ("int", whole)):
            made = Moments(1, kind)
            made.merge(known, into)
            one, whole = (made, whole) if kind == "float" else (one, made)
    assert one.nbytes == sized
    assert one.sums().tolist() == [math.fsum([0.1, 7.25, -3e5])]
    assert whole.pairs().tolist() == [[-(1 << 31), 0]]


def test_digits_hold_any_number_of_merges():
    one, into = Moments(1, "float"), np.zeros(1, np.int32)
    one.add(into, np.array([1e10]))
    total = 1
    for _ in range(70):
        made = Moments(1, "float")
        made.merge(one, into)
        made.merge(one, into)
        one, total = made, 2 * total
    assert one.sums().tolist() == [1e10 * total]
    one.subtract(one.take(into), into)
    assert one.count.tolist() == [0]


def test_an_image_does_not_depend_on_how_often_digits_were_carried():
    values, into = np.full(1 << 20, (1 << 53) - 1.0), np.zeros(1, np.int32)
    whole, parts = Moments(1, "float"), Moments(1, "float")
    whole.add_runs(into, np.array([0, len(values)]), values)
    for part in np.split(values, 64):
        one = Moments(1, "float")
        one.add(np.zeros(len(part), np.int32), part)
        parts.merge(one, into)
    for name, image in whole.image().items():
        assert np.array_equal(image, parts.image()[name]), name


@pytest.mark.parametrize("kind", ["float", "int"])
def test_runs_that_are_longer_than_bins_hold(kind):
    whole = np.random.default_rng(5).integers(-(1 << 50), 1 << 50, 40_000)
    values: Any = whole / 1024 if kind == "float" else whole
    starts, groups = np.array([0, 30_000, 30_000, 39_900, 40_000]), np.array([1, 0, 2, 1], np.int32)
    runs, each = Moments(3, kind), Moments(3, kind)
    runs.add_runs(groups, starts, values)
    each.add(np.repeat(groups, np.diff(starts)), values)
    same(runs, each)
