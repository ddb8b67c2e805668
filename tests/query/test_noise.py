"""Noise over every counter of every summary: estimates change, and the order of regions; no complete answer does.

Sketches rank and never decide. What decides are postings, cells and filters, which are one-sided.
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from promising.index.summary import SummaryState
from tests.query.stores import MS, UNPOSTED, Stores, filled, pieces, rows_of, tuples
from tests.query.test_resume import PREFERENCES, budgets, query, random_query

STRUCTURES = ("time", "grid", "adaptive", UNPOSTED)  # "none" has no counters


def noise(made: Stores, seed: int) -> int:
    """Overwrite the counters of all zones, their sums and the open zone; returns how many."""
    rng = np.random.default_rng(seed)
    written = 0
    for name in "ab":
        state = made.session.summary(f"by_{name}").index.state
        assert isinstance(state, SummaryState)
        fine = state.fine
        states = [fine.pool.counts, *(block.whole.counts for block in fine.blocks.values())]
        coarse = [zone for zones in state.coarse.levels.values() for zone in zones.values()]
        states += [zone.counts for zone in coarse]
        arrays: list[NDArray[Any]] = [fine._signed, *(part.counters for part in states)]
        arrays += [part.derived for part in states]
        for part in states:
            part.known[:] = False
        for array in arrays:
            array[...] = rng.integers(-30_000, 30_000, array.shape)
            written += array.size
    return written


def worlds(structure: str, strings: bool = False) -> Stores:
    made = filled(480, 90, structure=structure, strings=strings)
    assert noise(made, 1) > 10_000
    return made


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_noise_changes_no_row_of_a_complete_answer(preference, structure, strings):
    """Asked at once, and in pieces under random budgets that are resumed to the end."""
    made = worlds(structure, strings)
    rng = random.Random(f"noise {preference} {structure} {strings}")
    for number in range(4):
        asked = random_query(rng, preference)
        truth = asked.truth(made)
        whole = rows_of(made.session.query(asked.sql, seed=3))
        made.cpu.step = rng.choice([2, 5, 10]) * MS
        parts, progress = pieces(made, asked.sql, budgets(rng), seed=3)
        assert progress[-1].complete
        for rows in (whole, [row for part in parts for row in part]):
            assert len(rows) == len(set(rows)) == (len(truth) if asked.limit is None else min(asked.limit, len(truth)))
            assert set(rows) <= truth
        noise(made, number)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_noise_changes_no_row_while_zones_are_cut_and_collapse(structure):
    made = worlds(structure)
    rng = random.Random(structure)
    for number in range(6):
        for at, name in enumerate("ab"):
            made.ingest(name, tuples(200, 40, seed=100 + 2 * number + at, start=40 + 3.0 * number, seconds=3))
        noise(made, number)
        asked = query(number % 2 == 0, rng.choice(list(PREFERENCES)), fade="", window=rng.choice([None, 9]), where=True)
        assert Counter(rows_of(made.session.query(asked.sql))) == Counter(asked.truth(made))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_noise_changes_no_exact_aggregate(structure):
    made, calm = worlds(structure), filled(480, 90, structure=structure)
    counts = "SUMMARY.Estimate.Count(a.k)"
    for tail in ("", " WINDOW 15 SECONDS", f" WITH PREFERENCE DESC {counts} BUDGET 1 HOUR", " BUDGET 1 HOUR"):
        sql = f"SELECT a.k, count(*), sum(a.n) FROM a, b WHERE a.k = b.k GROUP BY a.k{tail}"
        assert Counter(rows_of(made.session.query(sql))) == Counter(rows_of(calm.session.query(sql)))


@pytest.mark.parametrize("search", ["flat", "pyramid"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_noise_changes_estimates_and_the_order_of_regions_but_not_which_there_are(structure, search):
    made, calm = worlds(structure), filled(480, 90, structure=structure)
    keys = list(range(90))
    assert (made.session.estimate("by_a", keys).value != calm.session.estimate("by_a", keys).value).any()
    found, known = (s.session.summary("by_a").index.regions(keys, search=search) for s in (made, calm))
    for column in ("key", "granularity", "zone", "bucket", "tuples", "start", "end"):
        assert (getattr(found, column) == getattr(known, column)).all()
    assert (np.argsort(-found.estimate) != np.argsort(-known.estimate)).any()
    exact = Counter(calm.columns("a")["k"].tolist())
    if structure != UNPOSTED:  # postings bound an estimate, whatever the counters are
        assert (made.session.estimate("by_a", keys).upper >= [exact[key] for key in keys]).all()
