"""A session in process: what exists, under which names, and how answers are taken from it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import promising
from promising.errors import DivisionByZero, DuplicateName, InUse, NoSuchName, StatementError
from promising.query import Session
from promising.query.answers import Answer, Done, Explanation
from promising.testing import ManualClock

SECOND = 1_000_000


def stream(name: str) -> str:
    return f"CREATE STREAM {name} (ts TIMESTAMP, Item INT, shop VARCHAR, price DOUBLE) TIMESTAMP BY ts"


def summary(name: str, of: str, key: str = "item", structure: str = "adaptive") -> str:
    return (
        f"CREATE SUMMARY {name} ON {of} ({key}) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3) STRUCTURE {structure}"
    )


@pytest.fixture
def session() -> Session:
    return filled(Session)


def filled(opened: Callable[..., Session]) -> Session:
    """`sales` and `stock`, a tuple a second for a minute, both with summaries on `item`."""
    made = opened(clock=ManualClock(1_000 * SECOND), seed=5)
    for name in ("sales", "stock"):
        made.execute(stream(name))
        made.execute(summary(f"{name}_item", name))
        n = 60
        made.ingest(
            name,
            {
                "ts": [i * SECOND for i in range(n)],
                "Item": [i % 4 if name == "sales" else i % 6 for i in range(n)],
                "shop": ["north" if i % 3 else None for i in range(n)],
                "price": [i / 2 for i in range(n)],
            },
        )
    return made


def told(session: Session, sql: str) -> Any:
    """The table that a SHOW or DESCRIBE gives."""
    table = session.execute(sql)
    assert isinstance(table, pa.Table)
    return table


def shown(session: Session, what: str) -> Any:
    return told(session, f"SHOW {what}")["name"].to_pylist()


def done(session: Session, sql: str) -> Done:
    made = session.execute(sql)
    assert isinstance(made, Done)
    return made


# --- CREATE, DROP ------------------------------------------------------------------------------------------------


def test_what_is_created_is_shown_and_what_is_dropped_is_gone(session: Session):
    made = done(session, stream("returns"))
    assert (str(made), made.changed) == ("stream returns created", True)
    assert shown(session, "STREAMS") == ["returns", "sales", "stock"]
    assert shown(session, "SUMMARIES") == ["sales_item", "stock_item"]
    assert shown(session, "QUERIES") == []
    assert str(session.execute("DROP STREAM returns")) == "stream returns dropped, 0 rows"
    assert str(session.execute("DROP SUMMARY stock_item")) == "summary stock_item dropped"
    assert shown(session, "STREAMS") == ["sales", "stock"]
    assert shown(session, "SUMMARIES") == ["sales_item"]
    with pytest.raises(NoSuchName):
        session.query("SELECT * FROM returns")
    with pytest.raises(NoSuchName):
        session.estimate("stock_item", [1])


def test_names_are_case_insensitive_and_keep_their_spelling(session: Session):
    session.execute(stream("Returns"))
    session.execute(summary("By_Item", "RETURNS", "ITEM"))
    assert "Returns" in shown(session, "STREAMS")
    assert "By_Item" in shown(session, "SUMMARIES")
    assert session.ingest("rETURNS", {"ts": [1], "Item": [3], "shop": ["a"], "price": [1.0]}).accepted == 1
    assert session.query("select ITEM, Ts from returns").to_arrow().column_names == ["Item", "ts"]
    assert session.estimate("BY_ITEM", [3]).value.tolist() == [1.0]
    for again in (stream("RETURNS"), summary("by_item", "returns"), stream("by_ITEM")):
        with pytest.raises(DuplicateName, match="already"):
            session.execute(again)
    session.execute("DROP SUMMARY BY_ITEM")
    session.execute("DROP STREAM returns")
    assert shown(session, "STREAMS") == ["sales", "stock"]


def test_names_that_need_quotes(session: Session):
    session.execute('CREATE STREAM "two words" ("Ts" TIMESTAMP, "select" INT) TIMESTAMP BY "Ts"')
    session.execute('CREATE SUMMARY "from" ON "two words" ("select") WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)')
    session.ingest("two words", {"Ts": [1, 2], "select": [7, 8]})
    asked = 'SELECT "select" AS "group by" FROM "two words" WITH PREFERENCE SUMMARY.Estimate.Count("select")'
    assert sorted(session.query(asked).to_arrow()["group by"].to_pylist()) == [7, 8]
    session.execute('DROP STREAM "TWO WORDS" CASCADE')
    assert shown(session, "SUMMARIES") == ["sales_item", "stock_item"]


def test_if_exists_and_if_not_exists(session: Session):
    for sql in (
        stream("IF NOT EXISTS SALES"),
        "CREATE SUMMARY IF NOT EXISTS sales_item ON stock (shop) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)",
        "DROP STREAM IF EXISTS nothing",
        "DROP SUMMARY IF EXISTS nothing CASCADE",
        "DROP QUERY IF EXISTS nothing",
    ):
        before = told(session, "SHOW SUMMARIES").to_pydict(), told(session, "SHOW STREAMS").to_pydict()
        assert not done(session, sql).changed
        assert (told(session, "SHOW SUMMARIES").to_pydict(), told(session, "SHOW STREAMS").to_pydict()) == before
    assert done(session, stream("IF NOT EXISTS fresh")).changed
    assert done(session, "DROP STREAM IF EXISTS fresh").changed


def test_if_not_exists_does_not_take_the_name_of_something_else(session: Session):
    with pytest.raises(DuplicateName, match="is a summary already; drop it first") as found:
        session.execute(stream("IF NOT EXISTS sales_item"))
    assert "or write IF NOT EXISTS" not in str(found.value), "it was written, and does not help"


def test_drop_asks_for_cascade_where_something_depends(session: Session):
    session.execute("CREATE CONTINUOUS QUERY watch AS SELECT count(*) FROM sales WINDOW 5 SECONDS")
    session.execute(
        "CREATE CONTINUOUS QUERY both_ AS SELECT a.item FROM sales a, stock b WHERE a.item = b.item"
        " WITH PREFERENCE SUMMARY.Estimate.Count(a.item), SUMMARY.Estimate.Count(b.item) WINDOW 5 SECONDS"
    )
    with pytest.raises(InUse, match="summary sales_item, query both_, query watch"):
        session.execute("DROP STREAM sales")
    with pytest.raises(InUse, match="query both_"):
        session.execute("DROP SUMMARY stock_item")
    assert len(shown(session, "QUERIES")) == 2
    session.execute("DROP SUMMARY stock_item CASCADE")
    assert shown(session, "QUERIES") == ["watch"]
    session.execute("DROP STREAM sales CASCADE")
    assert [shown(session, what) for what in ("STREAMS", "SUMMARIES", "QUERIES")] == [["stock"], [], []]
    session.execute(stream("sales"))  # the name is free again, and the stream is a new one
    assert session.query("SELECT * FROM sales").to_arrow().num_rows == 0


def test_what_was_removed_stays_gone(session: Session):
    """Tuples older than KEEP do not return with a longer one, nor with another summary, nor with none."""
    n = 200  # KEEP 80 s, zones of 10 s: at watermark 199 s the oldest is floor((199 - 80) / 10) * 10 = 110 s
    session.execute("ALTER STREAM sales KEEP 80 SECONDS")
    more = {"ts": [i * SECOND for i in range(60, n)], "Item": [1] * 140, "shop": ["a"] * 140, "price": [1.0] * 140}
    assert session.ingest("sales", more).accepted == 140

    def kept() -> Any:
        return session.query("SELECT * FROM sales").to_arrow().num_rows

    assert kept() == 90
    session.execute("CREATE SUMMARY short ON sales (item) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 3)")
    assert kept() == 90
    session.execute("ALTER STREAM sales KEEP ALL")
    session.execute("CREATE SUMMARY long ON sales (item) WITH GRANULARITY 1 HOUR AND COLLAPSE (2, 3)")
    assert kept() == 90
    for name in ("long", "short", "sales_item"):
        session.execute(f"DROP SUMMARY {name}")
        assert kept() == 90


# --- continuous queries ------------------------------------------------------------------------------------------


def test_a_continuous_query_is_registered_in_canonical_form(session: Session):
    session.execute(
        "create continuous query Watch as select item, count(*) n from sales s group by item window 5 seconds"
    )
    assert shown(session, "QUERIES") == ["Watch"]
    (row,) = told(session, "DESCRIBE watch").to_pylist()
    assert row["name"] == "Watch"
    assert row["reads"] == "sales"
    assert row["statement"] == ("SELECT item, count(*) AS n FROM sales AS s GROUP BY item WINDOW 5 SECONDS")
    answered = session.query(row["statement"]).to_arrow()
    assert sorted(answered["n"].to_pylist()) == [1, 1, 1, 2]
    session.execute("CREATE CONTINUOUS QUERY IF NOT EXISTS watch AS SELECT price FROM stock")
    assert told(session, "DESCRIBE watch").to_pylist() == [row]
    session.execute("DROP QUERY WATCH")
    assert shown(session, "QUERIES") == []


# --- SHOW, DESCRIBE ----------------------------------------------------------------------------------------------


def test_show_streams_counts(session: Session):
    session.ingest(
        "sales", {"ts": [5000 * SECOND, 60 * SECOND], "Item": [1, 1], "shop": ["a", "a"], "price": [1.0, 1.0]}
    )
    row, other = told(session, "SHOW STREAMS").to_pylist()
    assert (row["name"], row["time"], row["tuples"], row["refused"], row["summaries"]) == ("sales", "ts", 61, 1, 1)
    assert (other["tuples"], other["refused"]) == (60, 0)
    assert row["watermark"].timestamp() - other["watermark"].timestamp() == 1
    assert row["bytes"] > 0


def test_show_summaries_and_describe(session: Session):
    session.execute(summary("shops", "sales", "price").replace("(price)", "(item)"))
    table = told(session, "SHOW SUMMARIES").to_pydict()
    assert table["name"] == ["sales_item", "shops", "stock_item"]
    assert table["stream"] == ["sales", "sales", "stock"]
    assert table["key"] == ["Item"] * 3
    assert table["structure"] == ["adaptive"] * 3
    assert [g.total_seconds() for g in table["granularity"]] == [10.0] * 3
    assert table["granularities"] == [3] * 3
    assert table["tuples"] == [60] * 3
    assert all(b <= c for b, c in zip(table["bytes"], table["ceiling"], strict=True))
    zones = told(session, "DESCRIBE stock_item").to_pydict()
    assert sum(zones["tuples"]) == 60
    assert set(zones["granularity"]) == {1, 2, 3}
    columns = told(session, "DESCRIBE Stock").to_pydict()
    assert columns["column"] == ["ts", "Item", "shop", "price"]
    assert columns["type"] == ["timestamp", "int", "string", "float"]
    assert columns["time"] == [True, False, False, False]
    assert columns["summary"] == [None, "stock_item", None, None]


# --- execute, execute_many ---------------------------------------------------------------------------------------


def test_execute_gives_each_statement_its_kind_of_answer(session: Session):
    answer = session.execute("SELECT max(price) AS m FROM sales")
    assert isinstance(answer, Answer)
    assert answer.progress.complete, "a SELECT has run to the end"
    assert answer.to_arrow().to_pydict() == {"m": [29.5]}
    assert isinstance(session.execute("EXPLAIN SELECT * FROM sales"), Explanation)
    assert isinstance(session.execute("SHOW QUERIES"), pa.Table)


def test_execute_many_stops_at_the_first_failure(session: Session):
    with pytest.raises(DivisionByZero):
        session.execute_many(f"{stream('one')}; SELECT 1 / 0 FROM sales; {stream('two')}")
    assert shown(session, "STREAMS") == ["one", "sales", "stock"]
    with pytest.raises(StatementError) as found:  # what cannot be read is seen before anything is done
        session.execute_many(f"{stream('two')};\n SELEC 1")
    assert (found.value.line, found.value.column) == (2, 2)
    assert shown(session, "STREAMS") == ["one", "sales", "stock"]
    made = session.execute_many(f"{stream('two')}; -- a comment; with a semicolon\nSHOW STREAMS;")
    assert [type(m) for m in made] == [Done, pa.Table]


# --- answers -----------------------------------------------------------------------------------------------------


def test_the_shortest_real_use():
    session = promising.open(seed=1)
    session.execute("CREATE STREAM store1 (ts TIMESTAMP, item_id BIGINT, price DOUBLE) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY s1 ON store1 (item_id) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
    session.ingest(
        "store1",
        pa.table({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "item_id": [7, 7, 9], "price": [1.0, 2.0, 3.0]}),
    )
    frames = list(session.query("SELECT item_id FROM store1 WITH PREFERENCE DESC SUMMARY.Estimate.Count(item_id)"))
    assert [i for f in frames for i in f.rows["item_id"].to_pylist()] == [7, 7, 9]
    assert frames[-1].progress.complete
    assert session.estimate("s1", [7, 9]).value.tolist() == [2.0, 1.0]
    assert sum(r.tuples for r in session.regions("s1", [7])) >= 2


def test_to_pandas(session: Session):
    frame = session.query(
        "SELECT item, avg(price) AS mean, min(shop) AS s, max(ts) AS t FROM sales GROUP BY item ORDER BY item"
    ).to_pandas()
    assert list(frame.columns) == ["Item", "mean", "s", "t"]
    assert frame["mean"].tolist() == [14.0, 14.5, 15.0, 15.5]
    assert str(frame["t"].dtype) == "datetime64[us]"
    assert frame["s"].tolist() == ["north"] * 4
    empty = session.query("SELECT item, price FROM sales WHERE price < 0").to_pandas()
    assert list(empty.columns) == ["Item", "price"]
    assert len(empty) == 0


def test_names_of_columns(session: Session):
    names = (
        session.query("SELECT item, a.ITEM, price * 2, price AS p, shop AS P FROM sales a LIMIT 1")
        .to_arrow()
        .column_names
    )
    assert names == ["Item", "Item_1", "price * 2", "p", "P_1"]
    joined = session.query("SELECT * FROM sales a, stock b WHERE a.item = b.item LIMIT 1").to_arrow().column_names
    assert joined == ["ts", "Item", "shop", "price", "ts_1", "Item_1", "shop_1", "price_1"]
    assert len(session.query("SELECT b.* FROM sales a, stock b WHERE a.item = b.item").to_arrow().column_names) == 4


def test_an_answer_can_be_read_once_and_kept(session: Session):
    answer = session.query("SELECT price FROM sales")
    frames = list(answer)
    assert sum(f.rows.num_rows for f in frames) == 60
    assert list(answer) == []
    assert answer.to_arrow().num_rows == 60
    assert answer.last is frames[-1]


def test_the_same_seed_gives_the_same_order(session: Session):
    asked = "SELECT ts FROM sales WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(item)"

    def order(seed: int | None) -> Any:
        return session.query(asked, seed=seed).to_arrow()["ts"].to_pylist()

    assert order(4) == order(4)
    assert order(4) != order(5)
    assert sorted(order(4)) == sorted(order(None))


# --- EXPLAIN -----------------------------------------------------------------------------------------------------

JOIN = "SELECT a.price FROM sales a, stock b WHERE a.item = b.item"
PREFERRED = (
    JOIN + " WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item), SUMMARY.Estimate.Count(b.item) FADE FACTOR 0.5"
)


def test_explain_names_the_plan(session: Session):
    def plan(sql: str) -> str:
        return str(session.execute(f"EXPLAIN {sql}"))

    assert "in order of arrival" in plan("SELECT * FROM sales")
    assert "keep where price > 3" in plan("SELECT item FROM sales WHERE price > 3")
    assert "summary sales_item" in plan(JOIN)
    assert "plain hash join on a.shop = b.shop (no summary on shop" in plan(
        "SELECT a.ts FROM sales a, stock b WHERE a.shop = b.shop"
    )
    assert "plain hash join on a.item + 1 = b.item + 1 (no summary on the expression" in plan(
        "SELECT a.ts FROM sales a, stock b WHERE a.item + 1 = b.item + 1"
    )
    assert "only keys with item = 2" in plan("SELECT * FROM sales WHERE item = 2")
    assert "sort, the first 5" in plan("SELECT item FROM sales ORDER BY item LIMIT 5")
    assert "aggregate count, sum by 1 keys" in plan("SELECT item, count(*), sum(price) FROM sales GROUP BY item")
    assert "expected rows: 60, between 60 and 60" in plan("SELECT * FROM sales")


def test_explain_says_truly_why_a_summary_is_not_used(session: Session):
    session.execute(stream("plain"))
    session.execute(summary("plain_item", "plain", structure="none"))
    session.ingest("plain", {"ts": [1], "Item": [1], "shop": ["a"], "price": [1.0]})
    text = str(session.explain("SELECT item FROM plain WITH PREFERENCE SUMMARY.Estimate.Count(item)"))
    assert "window" not in text, "there is no window"
    assert "no structure" in text


def test_explain_shows_the_first_promising_regions(session: Session):
    explained = session.explain(PREFERRED)
    assert explained.progress is None, "nothing was run"
    assert "most promising first, fading by 0.5 a granularity" in str(explained)
    rows = explained.regions.to_pylist()
    assert {r["rank"] for r in rows} >= {1, 2}
    assert {r["stream"] for r in rows} == {"sales", "stock"}
    for row in rows:
        assert row["lower"] <= row["estimate"] <= row["upper"]
        assert row["fade"] == 0.5 ** (row["granularity"] - 1)
        assert row["start"] < row["end"]
        assert 0 <= row["bucket"] < 64
    first = [r["priority"] for r in sorted(rows, key=lambda r: r["rank"])]
    assert first == sorted(first, reverse=True)
    for word in (
        "granularity",
        "zone",
        "bucket",
        "estimate",
        "lower",
        "upper",
        "fade",
        "ruled out without a look",
    ):
        assert word in str(explained)
    assert explained.to_arrow()["plan"].to_pylist() == str(explained).split("\n")


def test_explain_analyze_says_what_came_of_it(session: Session):
    explained = session.execute(f"EXPLAIN ANALYZE {PREFERRED}")
    assert isinstance(explained, Explanation)
    assert explained.progress is not None
    expected = session.query(PREFERRED).to_arrow().num_rows
    assert explained.progress.rows == expected
    text = str(explained)
    assert f"emitted: {expected} rows" in text
    assert "visited: granularities 1, 2, 3; coverage 100.0%" in text
    assert f"ended at rank {explained.progress.rank} of {explained.progress.entries}: nothing was left" in text
    cut = session.explain(PREFERRED, analyze=True, budget=0)
    assert cut.progress is not None
    assert (cut.progress.rows, cut.progress.cut) == (0, "budget")
    assert "the budget was spent" in str(cut)
    assert "the LIMIT was reached" in str(session.explain(PREFERRED + " LIMIT 2", analyze=True))


def test_explain_changes_nothing(session: Session):
    before = told(session, "SHOW STREAMS").to_pydict(), session.query(JOIN).to_arrow().to_pydict()
    session.execute(f"EXPLAIN ANALYZE {PREFERRED}")
    assert (told(session, "SHOW STREAMS").to_pydict(), session.query(JOIN).to_arrow().to_pydict()) == before
