"""What a budget buys: true rows, the first of a fixed sequence, and bounds of what is missing that hold."""

import math
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from promising.errors import BadClause
from promising.query import Progress, Session
from promising.query.operators.operator import Guess
from tests.query.stores import MS, Row, Stores, as_rows, filled, frames, pieces, rows_of, stores, tuples
from tests.query.test_resume import FADES, PREFERENCES, STRUCTURES, query

CASES = [(join, window, where) for join in (False, True) for window in (None, 15) for where in (False, True)]

SPANS = (0, 0.02, 0.04, 0.05, 0.05, 0.1, 0.1)
"""Budgets of the pieces of an answer, in seconds."""


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.deep("many queries under many budgets")
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_rows_are_true_and_the_first_of_a_fixed_sequence(preference, structure):
    made = filled(360, 90, structure=structure, strings=structure == "grid")
    for join, window, where in CASES:
        for fade in FADES if preference != "none" else ("",):
            asked = query(join, preference, fade=fade, window=window, where=where)
            truth, whole = asked.truth(made), rows_of(made.session.query(asked.sql, seed=8))
            assert set(whole) == truth
            for budget in (0.02, 0.1, 10.0):
                made.cpu.step = 4 * MS
                answer = made.session.query(asked.sql, budget=budget, seed=8)
                rows = rows_of(answer)
                assert rows == whole[: len(rows)]
                assert answer.progress.rows == len(rows)
                assert answer.progress.complete == (len(rows) == len(whole) and answer.progress.cut is None)
                assert answer.progress.cut in ("budget", None)


def test_more_budget_buys_more_rows():
    made = filled(900, 90)
    asked = query(True, "DESC", fade="", window=None, where=False)
    counts = [len(rows_of(made.session.query(asked.sql, budget=b))) for b in (0, 0.05, 0.1, 0.3, 1.0)]
    assert counts == sorted(counts) and counts[0] == 0 and 0 < counts[2] < counts[-1]


def test_a_budget_counts_the_thread_that_works():
    """One that has worked longer may have asked: its CPU time is no credit."""
    session = Session()
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
    session.ingest("s", {"ts": np.arange(1_000), "k": np.arange(1_000)})
    while time.thread_time() < 0.1:
        pass
    steps = session.explaining("SELECT k FROM s", analyze=True, budget=0)
    with ThreadPoolExecutor(1) as other:
        explained = other.submit(list, steps).result()[-1]
    assert explained is not None and explained.progress is not None
    assert (explained.progress.rows, explained.progress.cut) == (0, "budget")


def test_the_smaller_of_two_budgets_counts():
    made = filled(900, 90)
    sql = "SELECT id FROM a"
    some = len(rows_of(made.session.query(sql, budget=0.04)))
    assert 0 < some < 900
    assert len(rows_of(made.session.query(f"{sql} BUDGET 40 MILLISECONDS"))) == some
    assert len(rows_of(made.session.query(f"{sql} BUDGET 40 MILLISECONDS", budget=9))) == some
    assert len(rows_of(made.session.query(f"{sql} BUDGET 9 SECONDS", budget=0.04))) == some


@pytest.mark.parametrize("budget", [-1, -0.001, math.nan, math.inf, 1e9, True, "1"])
def test_a_budget_that_is_none_is_refused(budget: Any):
    made = filled(30, 9)
    with pytest.raises(BadClause):
        made.session.query("SELECT id FROM a", budget=budget)


def test_in_a_hurry_the_newest_keys_come_first_and_nothing_is_lost():
    """There is no time to list all keys: those of the newest tuples are tried, the most frequent of them first."""
    made = stores(step=MS // 10)
    for number, name in enumerate("ab"):
        made.ingest(name, tuples(20_000, 15_000, seed=21 + number, exponent=0.3))
    asked = query(True, "DESC", fade="", window=None, where=False)
    got, _ = pieces(made, asked.sql, lambda n: 0.001 if n == 0 else None)
    flat = [row for piece in got for row in piece]
    assert 0 < len(got[0]) < len(flat)
    assert len(set(flat)) == len(flat) and set(flat) == asked.truth(made)


# --- bounds ----------------------------------------------------------------------------------------------------------


@dataclass
class Held:
    """How often bounds held, and how wide they were, relative to the truth."""

    trials: int = 0
    held: int = 0
    widths: list[float] = field(default_factory=list)

    def add(self, progress: Progress, truth: int) -> None:
        self.trials += 1
        total, coverage = progress.total, progress.coverage
        share = progress.rows / truth if truth else 1.0
        for guess in (total, coverage):
            assert guess.lower <= guess.value <= guess.upper
        assert coverage.lower >= 0 and coverage.upper <= 1
        self.held += total.lower <= truth <= total.upper and coverage.lower - 1e-9 <= share <= coverage.upper + 1e-9
        self.widths.append((total.upper - total.lower) / max(truth, 1))


@pytest.fixture(scope="module")
def worlds() -> list[Stores]:
    return [
        filled(600, 300, data=number, structure=structure)
        for number in range(1, 9)
        for structure in ("adaptive", "time")
    ]


@pytest.mark.deep("looks at every frame of many queries")
@pytest.mark.parametrize("preference", ["none", "DESC", "ASC", "WEIGHTED", "DESC, tuples"])
@pytest.mark.parametrize("join", [False, True])
def test_bounds_of_total_and_coverage_hold_at_every_frame(worlds, join, preference):
    """In 95 of 100 trials, told from summaries alone and later on; and they come to say something."""
    found: dict[str, Held] = defaultdict(Held)
    for made in worlds:
        for fade in FADES:
            for window in (None, 15):
                for where in (False, True):
                    asked = query(join, preference, fade=fade, window=window, where=where)
                    truth = len(asked.truth(made))
                    _, progress = pieces(made, asked.sql, lambda n: SPANS[n] if n < len(SPANS) else None)
                    found["at first"].add(progress[0], truth)
                    for each in progress[1:]:
                        found["later"].add(each, truth)
                    assert progress[-1].total == Guess(truth, truth, truth)
                    assert progress[-1].coverage == Guess(1, 1, 1)
    for held in found.values():
        assert held.held >= 0.95 * held.trials
        assert np.median(held.widths) <= 4


def test_a_join_that_is_planned_knows_its_size_exactly():
    made = filled(900, 90)
    for preference in ("DESC", "ASC", "WEIGHTED", "DESC, tuples"):
        asked = query(True, preference, fade="", window=None, where=False)
        truth = len(asked.truth(made))
        seen = [f.progress for f in frames(made.session.query(asked.sql, budget=0.4))]
        assert seen[-1].cut == "budget" and 0 < seen[-1].rows < truth
        assert seen[-1].total == Guess(truth, truth, truth)
        assert seen[-1].coverage.value == pytest.approx(seen[-1].rows / truth)


def test_a_whole_stream_knows_its_size_exactly():
    made = filled(900, 90)
    seen = [f.progress for f in frames(made.session.query("SELECT id FROM a", budget=0.03))]
    assert all(p.total == Guess(900, 900, 900) for p in seen)


def test_bounds_narrow_as_rows_are_read():
    made = filled(3_000, 90)
    widths = []
    for budget in (0, 0.04, 0.08, 0.12):
        progress = made.session.query("SELECT id FROM a WHERE n > 3", budget=budget).run().progress
        assert progress.total.upper <= progress.rows + 3_000 - progress.read
        widths.append(progress.total.upper - progress.total.lower)
    assert sorted(set(widths), reverse=True) == widths


# --- zero ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_without_any_budget_the_summaries_answer(structure):
    made = filled(900, 90, structure=structure)
    for preference in PREFERENCES:
        for join in (False, True):
            asked = query(join, preference, fade="", window=None, where=False)
            truth = len(asked.truth(made))
            answer = made.session.query(asked.sql, budget=0)
            assert rows_of(answer) == []
            progress = answer.progress
            assert progress.cut == "budget" and progress.token is not None and progress.read == 0
            assert progress.total.lower <= truth <= progress.total.upper
            assert progress.coverage.value == 0
            if structure != "none":
                assert abs(progress.total.value - truth) <= 0.15 * truth


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), sum(n), avg(price), min(price) FROM a",
        "SELECT count(*), sum(a.n) FROM a, b WHERE a.k = b.k",
        "SELECT k, count(*) FROM a GROUP BY k",
        "SELECT count(*) FROM a WHERE n > 3 WINDOW 15 SECONDS",
    ],
)
def test_without_any_budget_aggregates_have_bounds_that_hold(sql):
    made = filled(900, 90)
    exact = as_rows(made.session.query(sql).to_arrow())
    last = made.session.query(sql, budget=0).run().last
    assert last is not None and last.lower is not None and last.upper is not None
    assert not last.progress.complete and last.progress.cut == "budget"
    shown: list[tuple[Row, Row]] = list(zip(as_rows(last.lower), as_rows(last.upper), strict=True))
    assert len(shown) == (0 if "GROUP" in sql else 1)
    for low, high in shown:
        for lower, upper, true in zip(low, high, exact[0], strict=True):
            assert lower is None or lower <= true
            assert upper is None or true <= upper


def test_an_empty_stream_is_answered():
    made = stores()
    for sql in ("SELECT id FROM a", "SELECT a.id FROM a, b WHERE a.k = b.k", "SELECT id FROM a ORDER BY id"):
        for budget in (0, 0.1, None):
            answer = made.session.query(sql, budget=budget)
            assert rows_of(answer) == []
            assert answer.progress.total.upper == 0
    assert rows_of(made.session.query("SELECT count(*) FROM a", budget=0)) == [(0,)]


def test_a_sort_that_is_too_long_for_a_budget_uses_all_of_it():
    """No time is reserved for a last frame that will have no rows."""
    made = filled(20_000, 200, batches=1)
    made.cpu.step = MS
    answer = made.session.query("SELECT id FROM a ORDER BY price, n, id", budget=0.02)
    spent, without = 0.0, 0
    while (token := answer.run().progress.token) is not None:
        used, spent = answer.progress.cpu_seconds - spent, answer.progress.cpu_seconds
        if not answer.to_arrow().num_rows:
            assert used > 0.015
            without += 1
        answer = made.session.resume(token, budget=0.02)
    assert without and answer.to_arrow().num_rows == 20_000
