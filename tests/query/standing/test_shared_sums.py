"""Views of counts and sums that are folded together, against the same SELECT asked once."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising
from promising.errors import Overflow
from promising.query.standing.aggregate_view import Aggregating
from promising.query.standing.intervals import MOST
from promising.query.standing.views import Planned

SECOND = 1_000_000
START = 1_700_000_040 * SECOND


@pytest.fixture
def session():
    with promising.open(seed=7) as made:
        made.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, price DOUBLE, note TEXT) TIMESTAMP BY ts")
        yield made


def put(session, times, items, prices, notes=None):
    session.ingest(
        "a",
        pa.table(
            {
                "ts": pa.array(START + np.asarray(times), pa.timestamp("us")),
                "item": pa.array(items, pa.int64()),
                "price": pa.array(prices, pa.float64()),
                "note": pa.array(notes or [None] * len(items), pa.string()),
            }
        ),
    )


def close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-14)
    return bool(one == other)


@pytest.mark.parametrize("seed", range(3))
def test_views_are_what_the_same_select_answers_at_every_tick(session, seed):
    rng = np.random.default_rng(seed)
    asked = [
        f"SELECT count(*) AS n, count(note) AS o, sum(price) AS s, avg(price) AS a, avg(item) AS i, sum(item) AS t,"
        f" avg(item) + 1 AS u FROM a {where} WINDOW {window} SECONDS"
        for where, window in [
            ("", 5),
            ("WHERE price > 3", 5),
            ("WHERE price BETWEEN 1 AND 6 AND item < 40", 5),
            ("WHERE NOT (item BETWEEN 10 AND 70) AND price <= 7.5 AND price > 0.5", 11),
            ("WHERE item IN (1, 5, 9, 12) OR item > 90", 11),
            ("WHERE price < 0", 11),
        ]
    ]
    late = "SELECT sum(price) AS s FROM a WHERE item > 50 WINDOW 5 SECONDS"
    views: dict[str, Any] = {}

    def stand(query):
        name = f"q{len(views)}"
        session.execute(f"CREATE CONTINUOUS QUERY {name} AS {query}")
        assert isinstance(session.standing.view(name), Aggregating)
        views[query] = session.subscribe(name)

    for query in asked:
        stand(query)
    for tick in range(25):
        rows = int(rng.integers(0, 300))
        if rows:
            prices = np.where(rng.random(rows) < 0.02, rng.choice([math.nan, math.inf], rows), rng.normal(4, 2, rows))
            notes = [None if rng.random() < 0.5 else "x" for _ in range(rows)]
            times = SECOND * tick + rng.integers(-7 * SECOND, SECOND, rows)
            put(session, times, rng.integers(0, 100, rows), pa.array(prices, mask=rng.random(rows) < 0.1), notes)
        if tick == 12:
            stand(late)
        if tick == 18:
            views.pop(asked[1]).close()
            session.execute("DROP CONTINUOUS QUERY q1")
        for query, view in views.items():
            view.poll()
            (mine,), (true,) = view.snapshot().to_pylist(), session.query(query).to_arrow().to_pylist()
            assert all(close(mine[name], true[name]) for name in true), (tick, query, mine, true)


def test_a_row_that_is_what_it_was_is_not_told_again(session):
    session.execute("CREATE CONTINUOUS QUERY q AS SELECT count(*) AS n FROM a WHERE price > 5 WINDOW 10 SECONDS")
    view = session.subscribe("q")
    assert view.poll().inserts.to_pylist() == [{"n": 0}]
    put(session, [0], [1], [2.0])
    assert view.poll() is None
    put(session, [1], [1], [9.0])
    delta = view.poll()
    assert (delta.reset, delta.inserts.to_pylist()) == (False, [{"n": 1}])
    put(session, [20 * SECOND], [1], [math.nan])  # one ends, and NaN is greater than every number
    assert view.poll() is None
    assert view.snapshot().to_pylist() == [{"n": 1}]


def test_a_sum_beyond_64_bits_says_so_and_is_there_again_when_it_fits(session):
    session.execute("CREATE CONTINUOUS QUERY q AS SELECT sum(item) AS s FROM a WINDOW 10 SECONDS")
    view = session.subscribe("q")
    put(session, [0, 1, 5 * SECOND], [MOST, 5, 7], [1.0, 1.0, 1.0])
    with pytest.raises(Overflow, match=str(MOST + 12)):
        view.poll()
    (status,) = session.standing.status()
    assert "does not fit" in status.problem
    put(session, [12 * SECOND], [1], [1.0])
    view.poll()
    assert view.snapshot().to_pylist() == [{"s": 8}]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT count(*) FROM a WINDOW 5", Aggregating),
        ("SELECT sum(price) FROM a WHERE note = 'x' WINDOW 5", Planned),
        ("SELECT sum(price * 2) FROM a WINDOW 5", Planned),
        ("SELECT max(price) FROM a WINDOW 5", Planned),
        ("SELECT count(*) FROM a HAVING count(*) > 1 WINDOW 5", Planned),
        ("SELECT count(*) FROM a GROUP BY item WINDOW 5", Planned),
        ("SELECT 1 / count(*) FROM a WINDOW 5", Planned),
        ("SELECT count(*) FROM a WHERE item % 2 = 0 WINDOW 5", Planned),
    ],
)
def test_what_is_more_than_counts_and_sums_over_ranges_has_steps_of_its_own(session, query, kind):
    session.execute(f"CREATE CONTINUOUS QUERY q AS {query}")
    assert isinstance(session.standing.view("q"), kind)


def test_explain_says_that_sums_are_kept(session):
    told = session.execute("EXPLAIN CREATE CONTINUOUS QUERY q AS SELECT avg(price) FROM a WHERE price > 1 WINDOW 5")
    assert "view: sums" in str(told)
