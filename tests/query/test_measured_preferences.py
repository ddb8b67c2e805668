"""Preferences over what measures know: the order of brute force, bounds, and errors that say what is missing."""

import math
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import promising.errors as e
from promising.query import Session, measured_estimates
from promising.query.sql import parse
from tests.query.stores import SECOND, Columns, Stores, Ticking, pieces, rows_of, tuples

MEASURES = "MOMENTS(price), MOMENTS(n), QUANTILES(price), DISTINCT(n), FREQUENT(n), FREQUENT(w)"
BUDGETS = (0.02, 0.05, 0.1)
PAIRS = "SELECT a.k, a.id, b.id FROM a, b WHERE a.k = b.k"


@pytest.fixture(scope="module", params=["grid", "none"])
def made(request: pytest.FixtureRequest) -> Stores:
    cpu = Ticking()
    session = Session(clock=lambda: 1 << 60, cpu=cpu, seed=5)
    for name in "ab":
        session.execute(
            f"CREATE STREAM {name} (id BIGINT, k BIGINT, ts TIMESTAMP, price DOUBLE, n BIGINT, w VARCHAR)"
            " TIMESTAMP BY ts"
        )
        session.execute(
            f"CREATE SUMMARY by_{name} ON {name} (k) MEASURES ({MEASURES}) WITH GRANULARITY 4 SECONDS"
            f" AND COLLAPSE (2, 4) STRUCTURE {request.param}"
        )
    stores = Stores(session, cpu)
    for part in range(3):
        for number, name in enumerate("ab"):
            columns = tuples(300, 60, seed=20 + 10 * part + number, start=13.0 * part, seconds=13)
            columns["w"] = np.array([f"w{v}" for v in columns["n"]], object)
            stores.held[name].append(columns)
            session.ingest(name, {c: list(v) if v.dtype == object else v for c, v in columns.items()})
    return stores


def buckets(made: Stores, name: str) -> dict[int, int]:
    """The cell of each key, as the reference defines it: the first bits of its hash."""
    index = made.session.summary(f"by_{name}").index
    keys = list(range(60))
    if index.structure == "none":
        return dict.fromkeys(keys, 0)
    found = index.regions(keys)
    return {keys[at]: bucket for at, bucket in zip(found.key.tolist(), found.bucket.tolist(), strict=True)}


def by_cell(made: Stores, name: str, columns: Columns, what: str) -> dict[int, float]:
    """Of each key, what all tuples in its cell have of price."""
    of = buckets(made, name)
    held: dict[int, list[float]] = {}
    for k, price in zip(columns["k"].tolist(), columns["price"].tolist(), strict=True):
        held.setdefault(of[k], []).append(price)
    folds: dict[str, Callable[[list[float]], float]]
    folds = {"Sum": math.fsum, "Avg": lambda v: math.fsum(v) / len(v), "Min": min, "Max": max}
    return {k: folds[what](held[of[k]]) for k in set(columns["k"].tolist())}


def descends(values: list[float], direction: str) -> bool:
    steps = np.diff(values if direction == "DESC" else values[::-1])
    return bool((steps <= 1e-9 * np.maximum(np.abs(values[1:]), 1)).all())


@pytest.mark.parametrize("window", [None, 25, 6])
@pytest.mark.parametrize("direction", ["DESC", "ASC"])
@pytest.mark.parametrize("what", ["Sum", "Avg", "Min", "Max"])
@pytest.mark.parametrize("form", ["keys", "tuples", "pairs"])
def test_rows_come_by_the_moments_of_their_cells(made, form, what, direction, window):
    within = "" if window is None else f" WINDOW {window} SECONDS"
    bound = random.Random(f"{form} {what} {window}").choice(["", ".Lower", ".Upper"])  # exact, so all are the same
    estimate = f"SUMMARY.Estimate.{what}{bound}"
    held = made.window(window, "a", "b") if form == "pairs" else made.window(window, "a")
    known = [by_cell(made, name, columns, what) for name, columns in zip("ab", held, strict=False)]
    counts = Counter(held[0]["k"].tolist())
    sql, value = {
        "keys": (f"SELECT k, id FROM a WITH PREFERENCE {direction} {estimate}(price)", lambda r: known[0][r[0]]),
        "tuples": (
            f"SELECT k, id, n FROM a WITH PREFERENCE {direction} {estimate}(price) * n, SUMMARY.Estimate.Count(k)",
            lambda r: known[0][r[0]] * r[2] * counts[r[0]],
        ),
        "pairs": (
            f"{PAIRS} WITH PREFERENCE {direction} {estimate}(a.price) + {estimate}(b.price)",
            lambda r: known[0][r[0]] + known[1][r[0]],
        ),
    }[form]
    parts, progress = pieces(made, sql + within, lambda number: BUDGETS[number % 3] if number < 8 else None)
    rows = [row for part in parts for row in part]
    assert progress[-1].complete
    assert {row[1:3] if form == "pairs" else row[1:2] for row in rows} == (
        made.pairs(window) if form == "pairs" else {(i,) for i in held[0]["id"].tolist()}
    )
    assert len(rows) == len(set(rows)) and descends([value(row) for row in rows], direction)


@pytest.mark.parametrize("remembered", [1 << 16, 2])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("column", ["n", "w"])
@pytest.mark.parametrize("direction", ["DESC", "ASC"])
def test_a_frequency_is_that_of_the_value_of_the_tuple(made, column, direction, window, remembered, monkeypatch):
    monkeypatch.setattr(measured_estimates, "REMEMBERED", remembered)
    within = "" if window is None else f" WINDOW {window} SECONDS"
    counts = Counter(made.window(window, "a")[0][column].tolist())
    sql = f"SELECT {column} FROM a WITH PREFERENCE {direction} SUMMARY.Estimate.Frequency({column}){within}"
    values = [counts[row[0]] for row in rows_of(made.session.query(sql))]
    assert len(values) == counts.total() and descends([float(v) for v in values], direction)


def test_a_quantile_is_that_of_the_window(made):
    prices = made.columns("a")["price"]
    above = "CASE WHEN price > SUMMARY.Estimate.Quantile(price, 0.9) THEN 1 ELSE 0 END"
    rows = [row[0] for row in rows_of(made.session.query(f"SELECT price FROM a WITH PREFERENCE DESC {above}"))]
    first = int((np.array(rows) > np.quantile(prices, 0.95)).sum())
    assert set(rows[:first]) <= set(prices[prices > np.quantile(prices, 0.85)].tolist())


def estimated(made: Stores, expression: str, tail: str = "") -> float:
    """The value of a preference that is the same for all entries, as EXPLAIN shows it."""
    index = made.session.summary("by_a").index
    if index.structure == "none":
        pytest.skip("without structure there are no regions to explain")
    explained = made.session.explain(f"SELECT id FROM a WITH PREFERENCE DESC {expression}{tail}")
    values = set(explained.regions["priority"].to_pylist())
    assert len(values) == 1
    return float(values.pop())


@pytest.mark.parametrize("tail", ["", " WINDOW 6 SECONDS"])
@pytest.mark.parametrize("estimate", ["Quantile{}(price, 0.5)", "Quantile{}(price, 1)", "Distinct{}(n)"])
def test_bounds_enclose_the_value_and_the_truth(made, estimate, tail):
    columns = made.window(6 if tail else None, "a")[0]
    truth = {"0.5": np.quantile(columns["price"], 0.5, method="inverted_cdf"), "1": columns["price"].max()}
    exact = len(set(columns["n"])) if "Distinct" in estimate else truth[estimate.rpartition(" ")[2][:-1]]
    lower, value, upper = (
        estimated(made, "SUMMARY.Estimate." + estimate.format(b), tail) for b in (".Lower", "", ".Upper")
    )
    assert lower <= value <= upper and lower <= exact <= upper


def test_confidence_is_full_where_a_measure_is_exact(made):
    assert estimated(made, "SUMMARY.Confidence(k)") == 1.0
    assert estimated(made, "SUMMARY.Confidence(w) + 1") == pytest.approx(2.0, abs=1)
    assert 0 <= estimated(made, "SUMMARY.Confidence(price)") <= 1


ASKED = "SELECT id FROM a WITH PREFERENCE "


@pytest.mark.parametrize(
    ("preference", "error", "said"),
    [
        ("SUMMARY.Estimate.Quantile(price, ‸1.5)", e.BadClause, "from 0 to 1"),
        ("SUMMARY.Estimate.Quantile(price, ‸-0.1)", e.BadClause, "from 0 to 1"),
        ("‸SUMMARY.Estimate.Sum(w)", e.TypeMismatch, "is of type string"),
        ("‸SUMMARY.Estimate.Frequency(price)", e.TypeMismatch, "is of type float"),
        ("SUMMARY.Estimate.Sum(‸nothing)", e.NoSuchName, "nothing"),
    ],
)
def test_bad_estimates_have_their_place(made, preference, error, said):
    with pytest.raises(error, match=said) as refused:
        made.session.query(ASKED + preference.replace("‸", ""))
    assert refused.value.column == len(ASKED) + preference.index("‸") + 1


def test_an_estimate_that_no_summary_provides_says_which_statement_would():
    session = Session(clock=lambda: 1 << 60, seed=5)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, w VARCHAR, price DOUBLE) TIMESTAMP BY ts")
    session.ingest(
        "s", {"ts": np.arange(50) * SECOND, "k": np.arange(50) % 7, "w": ["x"] * 50, "price": np.arange(50.0)}
    )
    wanted = {
        "SUMMARY.Estimate.Sum(price)": "MOMENTS(price)",
        "SUMMARY.Estimate.Quantile.Upper(price, 0.5)": "QUANTILES(price)",
        "SUMMARY.Estimate.Count(k) * SUMMARY.Estimate.Distinct(w)": "DISTINCT(w)",
        "SUMMARY.Estimate.Count(k), SUMMARY.Estimate.Frequency(w)": "FREQUENT(w)",
        "SUMMARY.Confidence(price)": "MOMENTS(price)",
    }
    for preference, measure in wanted.items():
        sql = f"SELECT k FROM s WITH PREFERENCE {preference}"
        for statement in ("CREATE SUMMARY", "ALTER SUMMARY"):
            told = advice(session, sql)
            if told.startswith("CREATE") and "Count" in preference and "MEASURES" not in told:
                session.execute(told)  # the count itself has no summary yet
                told = advice(session, sql)
            if told.startswith("ALTER") and statement == "CREATE SUMMARY":
                continue
            assert told.startswith(statement) and measure in told
            session.execute(told)
            break
        else:
            raise AssertionError("no statement helped")
        assert session.query(sql).to_arrow().num_rows == 50
        for name in list(session.catalog.summaries):
            session.execute(f"DROP SUMMARY {name}")


def advice(session: Session, sql: str) -> str:
    """The statement at the end of the error, which can be pasted."""
    with pytest.raises(e.NoSummary) as refused:
        session.query(sql)
    told = refused.value.problem.rpartition("; ")[2].removeprefix("create one: ")
    parse(told)
    return told


def test_a_measured_preference_is_refused_where_entries_are_ranked_by_counts(made):
    both = "SUMMARY.Estimate.Sum(a.price), SUMMARY.Estimate.Count(b.k)"
    with pytest.raises(e.Unsupported, match="by no other expression"):
        made.session.execute(f"CREATE CONTINUOUS QUERY q AS {PAIRS} WITH PREFERENCE {both} WINDOW 1 SECOND")
    with pytest.raises(e.Unsupported, match="reads measures"):
        made.session.plan_scan(f"{PAIRS} WITH PREFERENCE {both}", share=0.5)
    alone = "SELECT id FROM a WITH PREFERENCE SUMMARY.Estimate.Sum(price)"
    assert made.session.plan_scan(alone).share == 1  # all of it is read, in any order
