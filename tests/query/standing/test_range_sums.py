"""Counts and sums over many ranges at once, against each range worked out alone."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from promising.query.standing.intervals import LEAST, MOST, Term, keys
from promising.query.standing.range_sums import MOST_PLACES, Asked, Cuts, Ranges, Values

ODD = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e308, -1e308, 5e-324, 1.0, 1.0 + 2**-52, 2.5, -7.25]
EDGES = [LEAST, LEAST + 1, MOST, MOST - 1, 0, -1, 1, 1 << 53, (1 << 53) + 1, -(1 << 53), 17, 40_000]


def plain(values: np.ndarray) -> np.ndarray:
    return keys(pa.array(values), "float" if values.dtype == np.float64 else "int")


# --- where a value lies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cuts",
    [
        np.array(ODD),
        np.linspace(-3.0, 3.0, 900),
        np.concatenate([1 + np.arange(40) * 2**-52, [1e12]]),  # more than fit a slot: they are searched
        np.array([-1.7e308, 1.7e308]),
        np.array([2.5]),
        np.empty(0),
    ],
    ids=["odd", "even", "dense", "wide", "one", "none"],
)
def test_the_piece_of_a_float_is_the_number_of_cuts_up_to_it(cuts):
    rng = np.random.default_rng(1)
    known = np.unique(np.concatenate([plain(cuts), plain(cuts) + 1]))
    values = np.concatenate([ODD, cuts, np.nextafter(cuts, -9e9), rng.normal(size=500), 1 + np.arange(60) * 2**-52])
    found = Cuts("float", known.tolist()).pieces((values, None), np.empty(len(values), np.int32))
    reachable = known[known <= plain(np.array([math.nan]))[0]]
    assert found.tolist() == np.searchsorted(reachable, plain(values), side="right").tolist()


@pytest.mark.parametrize(
    "cuts",
    [EDGES[1:], range(5, 90, 7), [*range(1_000_000, 1_000_040), 1 << 60], [*range(0, 1 << 40, 1 << 32)], [MOST], []],
    ids=["edges", "near", "dense", "even", "last", "none"],
)
def test_the_piece_of_an_integer_is_the_number_of_cuts_up_to_it(cuts: Sequence[int]):
    known = np.array(sorted(cuts), np.int64)
    near = [c + d for c in cuts for d in (-1, 1) if LEAST <= c + d <= MOST]
    values = np.array([*EDGES, *cuts, *near], np.int64)
    found = Cuts("int", known.tolist()).pieces((values, None), np.empty(len(values), np.int32))
    assert found.tolist() == np.searchsorted(known, values, side="right").tolist()


# --- sums of ranges ----------------------------------------------------------------------------------------------


def interval(rng: np.random.Generator, values: np.ndarray) -> list[tuple[int, int]]:
    """One or two intervals with ends among the values, open to a side now and then."""
    ends = np.unique(plain(rng.choice(values, 4)))
    pairs = [(int(ends[0]), int(ends[-1]))] if len(ends) < 4 else [(int(ends[0]), int(ends[1])), (int(ends[2]), MOST)]
    return [(LEAST, pairs[0][1]), *pairs[1:]] if rng.random() < 0.2 else pairs


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_ranges_are_those_of_their_tuples(seed):
    rng = np.random.default_rng(seed)
    rows = 3000
    columns: dict[str, Values] = {
        "x": (np.where(rng.random(rows) < 0.02, rng.choice(ODD, rows), rng.normal(size=rows) * 1e6), None),
        "y": (rng.normal(size=rows) * 10.0 ** rng.integers(-9, 9, rows), rng.random(rows) < 0.1),
        "k": (rng.integers(0, 50, rows), rng.random(rows) < 0.1),
        "n": (np.where(rng.random(rows) < 0.1, rng.choice(EDGES, rows), rng.integers(-(1 << 60), 1 << 60, rows)), None),
    }
    kinds: dict[str, Any] = {"x": "float", "y": "float", "k": "int", "n": "int"}
    asked = []
    for _ in range(60):
        named = rng.permutation(["x", "k", "n", "y"])[: rng.integers(0, 4)]
        terms = tuple(Term(name, kinds[name], interval(rng, columns[name][0])) for name in named)
        argument = rng.choice(["x", "y", "k", "n", ""])
        first = int(rng.choice([0, 700]))
        asked.append(Asked(terms, argument or None, kinds.get(argument), first))
    ranges = Ranges(asked)
    # In two parts, joined, and with fewer rows the second time: nothing of a fold is left for the next.
    parts = [(0, 2500), (2500, rows)]
    sums = ranges.none()
    for low, high in parts:
        cut = {name: (v[low:high], None if m is None else m[low:high]) for name, (v, m) in columns.items()}
        before = partial(lambda low, high, number: min(max(number - low, 0), high - low), low, high)
        sums.join(ranges.fold(cut.__getitem__, high - low, before))
    for one, place in zip(asked, ranges.rows, strict=True):
        kept = np.arange(rows) >= one.first
        for term in one.terms:
            values, missing = columns[term.column]
            at = plain(values)
            kept &= np.logical_or.reduce([(at >= low) & (at <= high) for low, high in term.intervals])
            kept &= True if missing is None else ~missing
        if one.argument is None:
            assert sums.ints[place, 2] == kept.sum()
            continue
        values, missing = columns[one.argument]
        left = values[kept if missing is None else kept & ~missing].tolist()
        if one.kind == "int":
            high, low, count = sums.ints[place].tolist()
            assert ((high << 32) + low, count) == (sum(left), len(left))
            assert 0 <= low < 1 << 32
            continue
        total, lost, number = sums.floats[place].tolist()
        assert number == len(left)
        odd = [v for v in left if not math.isfinite(v)]
        if odd or abs(total) > 1e300:
            true = sum(odd) if odd else total
            assert total == true or (math.isnan(total) and math.isnan(true))
        else:
            assert math.isclose(total + lost, math.fsum(left), rel_tol=1e-15, abs_tol=1e-300)


def test_a_huge_value_in_one_range_costs_another_no_digits():
    values = np.array([1e300, 0.1, 0.2, 0.3, -1e300, math.nan, math.inf])
    where = np.arange(7)
    asked = [Asked((Term("k", "int", [(low, high)]),), "x", "float") for low, high in ((1, 3), (0, 4), (5, 5), (6, 6))]
    ranges = Ranges(asked)
    made = ranges.fold({"k": (where, None), "x": (values, None)}.__getitem__, 7, lambda _: 0)
    found = [made.floats[place] for place in ranges.rows]
    assert [float(one[0] + one[1]) for one in found[:2]] == [math.fsum([0.1, 0.2, 0.3])] * 2
    assert math.isnan(found[2][0])
    assert found[3][0] == math.inf


def test_ranges_that_need_too_many_places_together_are_folded_apart():
    wide = [Asked((Term("k", "int", [(n, n)]), Term("n", "int", [(n, n + 3)])), None, None) for n in range(400)]
    ranges = Ranges(wide)
    assert len(ranges._groups) > 1
    assert all(len(group._tree) <= MOST_PLACES for group in ranges._groups)
    k, n = np.arange(400).repeat(2), np.arange(800) % 401
    made = ranges.fold({"k": (k, None), "n": (n, None)}.__getitem__, 800, lambda _: 0)
    true = [int(((k == q) & (n >= q) & (n <= q + 3)).sum()) for q in range(400)]
    assert [int(made.ints[place, 2]) for place in ranges.rows] == true
