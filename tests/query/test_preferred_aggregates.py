"""A preference never makes an aggregate worse: not slower, not less exact, at any budget.

Work is counted by a clock that ticks when it is read, so that the budgets are the same on every machine.
"""

import random
from dataclasses import replace

import pytest

from promising.query import Progress
from tests.query.stores import Row, Stores, filled, rows_of, stores, tuples

COUNT = "SUMMARY.Estimate.Count(k)"
PAIRED = "SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"
BUDGETS = (0, 0.03, 0.1, 0.3, 1, 60)
"""In seconds, of which a look at the clock takes a hundredth: from nothing to more than enough."""


@pytest.fixture(scope="module")
def made() -> Stores:
    return filled(3_000, 400)


def asked(made: Stores, sql: str, budget: float | None) -> tuple[list[Row], Progress, int]:
    """The rows, the progress, and the looks at the clock that it took."""
    before = made.cpu.now
    answer = made.session.query(sql, budget=budget, seed=3)
    rows = rows_of(answer)
    return rows, replace(answer.progress, token=None), (made.cpu.now - before) // made.cpu.step


def one_stream(rng: random.Random) -> str:
    items, group = rng.choice(
        [
            ("sum(price)", ""),
            ("count(*), avg(n), median(price)", ""),
            ("n, sum(price), avg(k)", " GROUP BY n ORDER BY n"),
        ]
    )
    where = rng.choice(["", " WHERE price > 9", " WHERE k IN (0, 3, 50, 9999)"])
    return f"SELECT {items} FROM a{where}{group}"


def tail(rng: random.Random) -> str:
    return rng.choice(["", " WINDOW 30 SECONDS", " WINDOW 4 SECONDS"]) + rng.choice(["", "", " WITH ERROR 0.02"])


@pytest.mark.parametrize("seed", range(40))
def test_an_aggregate_over_one_stream_is_the_same_with_a_preference_and_without(made, seed):
    rng = random.Random(seed)
    sql, clauses, budget = one_stream(rng), tail(rng), rng.choice([None, *BUDGETS])
    expression = rng.choice([COUNT, f"{COUNT} * price", f"1.0 / {COUNT}", f"{COUNT}, n"])
    fade = rng.choice(["", " FADE FACTOR 0.5", " FADE HALF LIFE 5 SECONDS"])
    preference = f" WITH PREFERENCE {rng.choice(['DESC', 'ASC', 'WEIGHTED'])} {expression}{fade}"
    rows, progress, work = asked(made, sql + clauses, budget)
    assert asked(made, sql + preference + clauses, budget) == (rows, progress, work)


@pytest.mark.parametrize("preference", [PAIRED, f"{PAIRED} * b.price", f"{PAIRED} / a.n"])
@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
@pytest.mark.parametrize("window", [None, 30, 4])
def test_an_aggregate_over_a_join_is_exact_after_as_much_work(made, direction, preference, window):
    within = "" if window is None else f" WINDOW {window} SECONDS"
    sql = "SELECT sum(a.price), count(*) FROM a, b WHERE a.k = b.k"
    exact, whole, work = asked(made, sql + within, 60)
    assert whole.complete and whole.cut is None
    rows, progress, more = asked(made, f"{sql} WITH PREFERENCE {direction} {preference}{within}", 60)
    assert progress.complete and rows[0] == (pytest.approx(exact[0][0]), exact[0][1])
    assert more <= 1.25 * work + 10
    assert progress.read <= 1.25 * whole.read


def test_a_budget_for_the_scan_is_enough_with_any_preference(made):
    """From the least budget on at which the aggregate is exact, it is exact with a preference that ranks tuples."""
    sql = "SELECT sum(price) FROM a"
    exact = rows_of(made.session.query(sql))
    enough = next(b for b in (0.01 * n for n in range(1, 10_000)) if asked(made, sql, b)[1].complete)
    rows, progress, _ = asked(made, f"{sql} WITH PREFERENCE DESC {COUNT} * price", enough)
    assert progress.complete and rows[0][0] == pytest.approx(exact[0][0])
    assert "changes nothing" in str(made.session.explain(f"{sql} WITH PREFERENCE DESC {COUNT} BUDGET 10 MS"))


@pytest.mark.parametrize("budget", ["", " BUDGET 1 HOUR"])
@pytest.mark.parametrize("expression", [COUNT, f"{COUNT} * price", "SUMMARY.Estimate.Sum(price)"])
def test_cells_answer_an_aggregate_that_has_a_preference(expression, budget):
    made = stores()
    for name in ("by_a", "by_b"):
        made.session.execute(f"DROP SUMMARY {name}")
    measured = "CREATE SUMMARY s ON a (k) MEASURES (MOMENTS(price))"
    made.session.execute(f"{measured} WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4)")
    made.ingest("a", tuples(20_000, 50, seed=3))
    plain, preferred = "SELECT sum(price), count(*) FROM a", f" WITH PREFERENCE DESC {expression}"
    rows, progress, _ = asked(made, plain + budget, None)
    assert progress.read < 10_000  # most is known from spans of the calendar
    again, more, _ = asked(made, plain + preferred + budget, None)
    assert (again, more.read, more.complete) == (rows, progress.read, True)
    explained = str(made.session.explain(plain + preferred + budget))
    assert "from cells" in explained and explained.count("the preference changes nothing") == 1
