"""Statements and errors that a new user meets first, in process and over the wire."""

import re
from typing import Any

import pytest

from promising.errors import BadClause, NoSuchName, NoSummary, NullTime, PromisingError, TooFarAhead, Unsupported
from tests.conformance.sessions import Opened

STREAM = "CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE, shop STRING) TIMESTAMP BY ts"
COUNT = "SELECT count(*) AS n FROM s"


def test_insert_adds_tuples_to_a_stream(opened: Opened) -> None:
    session = opened()
    session.execute(STREAM)
    done = session.execute("INSERT INTO S VALUES ('2024-05-01 12:00:00', 1 + 1, 2, 'a'), ('2024-05-01', -3, NULL, 'b')")
    assert str(done) == "2 rows of s inserted"
    session.execute("INSERT INTO s (item, ts) VALUES (9, '2024-05-02')")
    rows = session.query("SELECT item, price, shop FROM s ORDER BY item").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(-3, None, "b"), (2, 2.0, "a"), (9, None, None)]


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("INSERT INTO s VALUES ('2024-05-01', 1, 1, 'a'), ('2999-01-01', 1, 1, 'a')", TooFarAhead, "row 1"),
        ("INSERT INTO s VALUES ('2024-05-01', 1, 1, 'a'), (NULL, 1, 1, 'a')", NullTime, "row 1"),
        ("INSERT INTO s (item) VALUES (1)", NullTime, "event time"),
        ("INSERT INTO s (itme, ts) VALUES (1, '2024-05-01')", NoSuchName, "did you mean item"),
        ("INSERT INTO s VALUES (1)", BadClause, "s has 4 columns"),
        ("INSERT INTO s SELECT * FROM s", Unsupported, "ingest()"),
        ("UPSERT INTO s VALUES ('2024-05-01', 1, 1, 'a')", Unsupported, "a stream"),
    ],
)
def test_a_refused_insert_adds_nothing(opened: Opened, sql: str, error: type[PromisingError], said: str) -> None:
    session = opened()
    session.execute(STREAM)
    with pytest.raises(error, match=re.escape(said)):
        session.execute(sql)
    assert session.query(COUNT).to_arrow().to_pylist() == [{"n": 0}]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("strftime(ts, '%Y')", "no function strftime; write CAST(time AS STRING), or extract"),
        ("lenght(shop)", "did you mean length?"),
        ("triam_all(shop)", "no function triam_all\n"),
    ],
)
def test_an_unknown_function_suggests_only_what_helps(opened: Opened, call: str, said: str) -> None:
    session = opened()
    session.execute(STREAM)
    with pytest.raises(NoSuchName, match=re.escape(said)):
        session.query(f"SELECT {call} FROM s").run()


@pytest.mark.parametrize(("last", "granularity"), [("2022-05-01 00:10:00", "1 SECOND"), ("2024-05-01", "1 DAY")])
def test_the_advice_for_a_missing_summary_fits_and_can_be_pasted(opened: Opened, last: str, granularity: str) -> None:
    session = opened()
    session.execute(STREAM)
    session.execute(f"INSERT INTO s VALUES ('2022-05-01', 1, 1, 'a'), ('{last}', 2, 1, 'b')")
    asked = "SELECT item FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Count(item)"
    with pytest.raises(NoSummary) as caught:
        session.query(asked).run()
    advice = str(caught.value).partition("create one: ")[2].splitlines()[0]
    assert f"GRANULARITY {granularity} AND" in advice
    session.execute(advice)
    assert session.query(asked).to_arrow().num_rows == 2


@pytest.mark.parametrize("clause", ["KEEP 10 SECONDS", "KEEP 100 MICROSECONDS", "LATENESS 2 DAYS"])
def test_the_advice_for_a_missing_summary_fits_keep_lateness_and_taken_names(opened: Opened, clause: str) -> None:
    session = opened()
    session.execute(f"{STREAM} {clause}")
    session.execute("CREATE STREAM s_item (ts TIMESTAMP) TIMESTAMP BY ts")
    session.execute("INSERT INTO s VALUES ('2024-05-01', 2, 1, 'b')")
    asked = "SELECT item FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Count(item)"
    with pytest.raises(NoSummary) as caught:
        session.query(asked).run()
    session.execute(str(caught.value).partition("create one: ")[2].splitlines()[0])
    assert session.query(asked).to_arrow().num_rows == 1


# --- the view of a continuous query as a source ------------------------------------------------------------------


def viewed(session: Any) -> None:
    """Ten tuples, and a view that has taken them in, over the wire too."""
    session.execute(STREAM)
    session.execute("CREATE CONTINUOUS QUERY busy AS SELECT item, count(*) AS n FROM s GROUP BY item WINDOW 30 DAYS")
    session.execute("CREATE CONTINUOUS QUERY every AS SELECT item FROM s")
    rows = {"ts": [10**9 + i for i in range(10)], "item": [1, 1, 1, 1, 2, 2, 2, 3, 3, 4], "price": [1.0] * 10}
    session.ingest("s", {**rows, "shop": ["a"] * 10})
    with session.subscribe("busy") as subscription:
        while sum(row["n"] for row in subscription.snapshot().to_pylist()) < 10:
            subscription.poll(None)


def test_a_select_reads_the_view_of_a_continuous_query(opened: Opened) -> None:
    session = opened()
    viewed(session)

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in session.query(sql).to_arrow().to_pylist()]

    assert rows("SELECT * FROM busy ORDER BY n DESC LIMIT 2") == [(1, 4), (2, 3)]
    assert rows("SELECT b.item + 1 AS next FROM Busy b WHERE n < 3 ORDER BY 1") == [(4,), (5,)]
    assert rows("SELECT count(*) AS c, sum(n) AS s, max(n) AS m FROM busy") == [(4, 10, 4)]
    assert rows("SELECT n > 2 AS many, count(*) AS c FROM busy GROUP BY n > 2 ORDER BY c, many") == [
        (False, 2),
        (True, 2),
    ]
    assert session.query("SELECT * FROM busy").run().progress.complete
    session.execute("CREATE CONTINUOUS QUERY none AS SELECT item FROM s WHERE item > 99 WINDOW 30 DAYS")
    assert rows("SELECT * FROM none") == []


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("SELECT * FROM busy, s WHERE busy.item = s.item", Unsupported, "not in a join"),
        ("SELECT * FROM busy WINDOW 1 DAYS", Unsupported, "WINDOW is for streams"),
        ("SELECT item FROM busy WITH PREFERENCE DESC SUMMARY.Estimate.Count(item)", Unsupported, "WITH PREFERENCE"),
        ("SELECT __time FROM busy", NoSuchName, "__time"),
        ("SELECT * FROM every", Unsupported, "without WINDOW has no view"),
    ],
)
def test_what_a_view_does_not_offer(opened: Opened, sql: str, error: type[PromisingError], said: str) -> None:
    session = opened()
    viewed(session)
    with pytest.raises(error, match=re.escape(said)):
        session.query(sql).run()
