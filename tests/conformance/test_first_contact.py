"""Statements and errors that a new user meets first, in process and over the wire."""

import re

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
