"""approx_quantile, approx_count_distinct and approx_top_k over tuples: exact, as brute force and their exact twins."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadClause, BadSyntax, TypeMismatch, Unsupported
from promising.query import Session
from promising.query.aggregate.aggregates import Aggregate, Groups
from promising.query.aggregate.estimators import Sample, estimate
from promising.query.scalar.types import ARROW, Kind
from promising.testing import ManualClock
from tests.query.test_aggregates import KINDS, column
from tests.tiers import examples

SECOND = 1_000_000


def comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def plain(lists: list[Any]) -> list[Any]:
    return [None if one is None else [(comparable(v["value"]), v["count"]) for v in one] for one in lists]


def brute(groups: list[int], values: list[Any], most: int) -> list[Any]:
    out = []
    for group in dict.fromkeys(groups):
        mine = [comparable(v) for g, v in zip(groups, values, strict=True) if g == group and v is not None]
        found = Counter(mine)
        order = sorted(found, key=lambda v: (-found[v], (1, 0) if v == "NaN" else (0, v)))
        out.append([(v, found[v]) for v in order[:most]] or None)
    return out


@pytest.mark.kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_lists_of_every_kind(kind: Kind, most: int):
    """By group and in slices. No value of a string column is "NaN"."""
    rng = np.random.default_rng(most)
    rows = 400
    keys = pa.array(rng.integers(0, 5, rows))
    values = column(rng, kind, rows, 0.3)
    groups = Groups(["int"], [Aggregate("approx_top_k", kind, most)])
    for start in range(0, rows, 130):
        groups.add([keys.slice(start, 130)], [values.slice(start, 130)], len(keys.slice(start, 130)))
    (made,) = groups.result().values
    assert made.type == ARROW[Aggregate("approx_top_k", kind, most).result_kind]
    assert plain(made.to_pylist()) == brute(keys.to_pylist(), values.to_pylist(), most)
    assert all(v["lower"] == v["count"] == v["upper"] for one in made.to_pylist() if one for v in one)


@pytest.mark.kernel
def test_a_sample_bounds_the_counts_of_a_list():
    """In 95 % of samples the bounds of a frequent value hold, and most include the first one."""
    rng = np.random.default_rng(3)
    population = np.minimum(rng.zipf(1.6, 6000), 50)
    truth = Counter(population.tolist())
    held = total = first = 0
    for _ in range(100):
        chosen = rng.permutation(population)
        known, drawn = chosen[:1000], chosen[1000:1800]
        groups = Groups([], [Aggregate("approx_top_k", "int", 3)])
        groups.add([], [pa.array(known)], len(known))
        found = estimate(groups, Sample([], [pa.array(drawn)], len(drawn)), len(drawn), 5000)
        (listed,) = found.value[0].to_pylist()
        first += listed[0]["value"] == 1
        for one in listed:
            held += one["lower"] <= truth[one["value"]] <= one["upper"]
            total += 1
        assert found.lower[0].null_count == found.upper[0].null_count == 1
    assert held >= 0.92 * total
    assert first == 100


# --- SQL -----------------------------------------------------------------------------------------------------------


def filled(rows: list[tuple[int, float | None, str | None]]) -> Session:
    session = Session(clock=ManualClock(10**9 * SECOND), seed=3)
    session.execute("CREATE STREAM s (ts TIMESTAMP, g INT, x DOUBLE, city VARCHAR) TIMESTAMP BY ts")
    if rows:
        g, x, city = (list(part) for part in zip(*rows, strict=True))
        session.ingest("s", {"ts": [SECOND * i for i in range(len(rows))], "g": g, "x": x, "city": city})
    return session


def answer(session: Session, sql: str) -> list[dict[str, Any]]:
    return list(session.query(sql).to_arrow().to_pylist())


number = st.sampled_from([None, math.nan, math.inf, -0.0, 0.0, 1.5, -2.25, 1e9]) | st.floats(-9, 9)
row = st.tuples(st.integers(0, 3), number, st.sampled_from([None, "", "Oslo", "Rome", "größer"]))


def same(one: Any, other: Any) -> bool:
    return bool(comparable(one) == comparable(other))


@given(st.lists(row, max_size=60), st.sampled_from([0, 0.1, 0.5, 0.77, 1]), st.integers(1, 4))
@settings(max_examples=examples(40), deadline=None)
def test_over_tuples_they_are_exact(rows, at, most):
    """Equal to quantile and count(DISTINCT), and to brute force: of all rows, of groups, with a condition."""
    session = filled(rows)
    for tail in ("", " WHERE g < 2", " GROUP BY g ORDER BY g"):
        shown = answer(
            session,
            f"SELECT approx_quantile(x, {at}) AS a, quantile(x, {at}) AS b, approx_percentile(x, {at}) AS c,"
            " approx_count_distinct(city) AS d, count(DISTINCT city) AS e, approx_count_distinct(x) AS f,"
            f" count(DISTINCT x) AS h, approx_top_k(city, {most}) AS top, approx_top_k(x, {most}) AS tops FROM s{tail}",
        )
        kept = [r for r in rows if r[0] < 2] if "WHERE" in tail else rows
        by = "GROUP" in tail
        expected = [[r for r in kept if r[0] == g] for g in sorted({r[0] for r in kept})] if by else [kept]
        assert len(shown) == len(expected)
        for one, part in zip(shown, expected, strict=True):
            assert same(one["a"], one["b"]) and same(one["a"], one["c"])
            assert (one["d"], one["f"]) == (one["e"], one["h"])
            for name, place in (("top", 2), ("tops", 1)):
                found = brute([0] * len(part), [r[place] for r in part], most) or [None]
                assert plain([one[name]]) == found


def test_nothing_and_nulls():
    sql = "SELECT approx_quantile(x, 0.5) AS q, approx_count_distinct(x) AS d, approx_top_k(city, 2) AS t FROM s"
    assert answer(filled([]), sql) == [{"q": None, "d": 0, "t": None}]
    assert answer(filled([(1, None, None)]), sql) == [{"q": None, "d": 0, "t": None}]
    assert answer(filled([]), sql + " GROUP BY g") == []
    assert answer(filled([(1, 1.0, "a")]), "SELECT approx_top_k(NULL, 2) AS t FROM s") == [{"t": None}]


def test_having_and_order_take_the_numbers():
    session = filled([(g, float(i), "ab"[i % 2]) for g in range(3) for i in range(10 * g + 2)])
    shown = answer(
        session,
        "SELECT g, approx_top_k(city, 1) AS t FROM s GROUP BY g HAVING approx_count_distinct(x) > 2"
        " ORDER BY approx_quantile(x, 1) DESC",
    )
    assert [one["g"] for one in shown] == [2, 1]
    assert shown[0]["t"] == [{"value": "a", "count": 11, "lower": 11, "upper": 11}]


def test_a_budget_gives_bounds():
    """Cut by the budget, the quantile has bounds on the frame, and each value of the list its own."""
    session = filled([(0, float(i % 997), f"c{i % 3}") for i in range(40_000)])
    made = session.query("SELECT approx_quantile(x, 0.5) AS q, approx_top_k(city, 2) AS t FROM s", budget=0)
    first = made.run()
    assert first.progress.token is not None
    *_, last = list(session.resume(first.progress.token))
    assert last.progress.complete
    (whole,) = last.rows.to_pylist()
    assert whole["q"] == np.median(np.arange(40_000) % 997)
    assert whole["t"][0] == {"value": "c0", "count": 13_334, "lower": 13_334, "upper": 13_334}
    frames = list(session.query("SELECT approx_quantile(x, 0.5) AS q FROM s WITH ERROR 0.1", seed=1))
    assert frames[-1].lower is not None and frames[-1].upper is not None
    low, high = frames[-1].lower["q"][0].as_py(), frames[-1].upper["q"][0].as_py()
    assert low <= 498 <= high


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SELECT ‸approx_quantile(x, 1.5) FROM s", BadClause, "approx_quantile(x, q) takes a q from 0 to 1"),
        ("SELECT ‸approx_percentile(x, -0.1) FROM s", BadClause, "takes a q from 0 to 1"),
        ("SELECT ‸approx_quantile(x, g) FROM s", BadClause, "takes a q from 0 to 1"),
        ("SELECT ‸approx_quantile(x) FROM s", BadSyntax, "approx_quantile takes 2 arguments, not 1"),
        ("SELECT approx_quantile(‸city, 0.5) FROM s", TypeMismatch, "approx_quantile wants a number, not a string"),
        ("SELECT ‸approx_top_k(x, 0) FROM s", BadClause, "takes a whole k from 1 to 1,000,000"),
        ("SELECT ‸approx_top_k(x, -1) FROM s", BadClause, "takes a whole k from 1"),
        ("SELECT ‸approx_top_k(x, 1.5) FROM s", BadClause, "takes a whole k from 1"),
        ("SELECT ‸approx_top_k(x, 1000001) FROM s", BadClause, "takes a whole k from 1"),
        ("SELECT ‸approx_top_k(x) FROM s", BadSyntax, "approx_top_k takes 2 arguments, not 1"),
        ("SELECT coalesce(‸approx_top_k(x, 1), NULL) FROM s", Unsupported, "stands alone in the select list"),
        ("SELECT g FROM s GROUP BY g HAVING ‸approx_top_k(x, 1) IS NULL", Unsupported, "stands alone"),
        ("SELECT g FROM s GROUP BY g ORDER BY ‸approx_top_k(x, 1)", Unsupported, "stands alone"),
        ("SELECT approx_top_k(x, 1) AS t FROM s ORDER BY ‸t", Unsupported, "stands alone"),
        ("SELECT approx_top_k(x, 1) AS t FROM s ORDER BY ‸1", Unsupported, "stands alone"),
        ("SELECT g, approx_top_k(x, 1) AS t FROM s GROUP BY g LIMIT 1 BY ‸t", Unsupported, "stands alone"),
        ("SELECT g FROM s WHERE ‸approx_count_distinct(x) > 1", BadClause, "an aggregate cannot stand in WHERE"),
        ("SELECT approx_top_k(x, 2) FROM s ‸WITH ERROR 0.1", BadClause, "cannot be promised"),
        (
            "CREATE CONTINUOUS QUERY q AS SELECT ‸approx_top_k(x, 2) FROM s WINDOW 60 SECONDS",
            Unsupported,
            "whose view has no lists",
        ),
    ],
)
def test_bad_calls(sql, kind, message):
    at = sql.index("‸")
    with pytest.raises(kind) as raised:
        filled([]).execute(sql.replace("‸", ""))
    assert message in str(raised.value)
    assert (raised.value.line, raised.value.column) == (1, at + 1)


def test_a_continuous_query_keeps_the_numbers():
    session = filled([])
    session.execute(
        "CREATE CONTINUOUS QUERY q AS SELECT g, approx_quantile(x, 0.5) AS m, approx_count_distinct(city) AS d"
        " FROM s GROUP BY g WINDOW 60 SECONDS"
    )
    session.ingest("s", {"ts": [1, 2, 3], "g": [1, 1, 1], "x": [1.0, 2.0, 9.0], "city": ["a", "a", None]})
    assert answer(session, "SELECT g, m, d FROM q") == [{"g": 1, "m": 2.0, "d": 1}]
