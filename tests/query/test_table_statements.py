"""Reference tables in statements: what is said is done, kept, and refused at its place."""

import threading
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising
from promising.errors import (
    BadClause,
    BadSchema,
    DivisionByZero,
    DuplicateKey,
    DuplicateName,
    InUse,
    MissingColumn,
    MissingKey,
    NoSuchName,
    NullKey,
    PromisingError,
    TypeMismatch,
    Unsupported,
    ValueTooLong,
)
from promising.index.check import check_table
from promising.index.storage.repair import repair
from promising.index.storage.store import Store
from promising.index.storage.table_store import FOLDER
from promising.query.session import Session

MADE = "CREATE TABLE Rates (Code STRING PRIMARY KEY, rate FLOAT, since TIMESTAMP, n INT, old BOOL)"
NAMES = ("Code", "rate", "since", "n", "old")
JOINED = "SELECT s.code, r.rate FROM sales s, rates r WHERE s.code = r.code WINDOW 1 HOUR"


@pytest.fixture
def session():
    with Session(seed=1) as made:
        made.execute(MADE)
        made.execute("CREATE STREAM sales (ts TIMESTAMP, code STRING) TIMESTAMP BY ts")
        yield made


def rows(session: Session) -> list[tuple[Any, ...]]:
    found = session.table("rates")
    assert tuple(found.column_names) == NAMES
    return sorted(zip(*found.to_pydict().values(), strict=True))


def shown(session: Session, sql: str) -> pa.Table:
    found = session.execute(sql)
    assert isinstance(found, pa.Table)
    return found


# --- what is done ----------------------------------------------------------------------------------------------------


def test_the_life_of_a_table(session):
    said = [
        session.execute(
            "INSERT INTO rates VALUES ('EUR', 1, '2026-01-01', 2 * 3, TRUE), ('USD', NULL, NULL, -1, NULL)"
        ),
        session.execute("UPSERT INTO RATES (rate, code) VALUES (1.5, 'EUR'), (2 / 4, 'G' || 'BP')"),
        session.execute("UPDATE rates SET n = 7, RATE = 3 WHERE code = 'USD'"),
        session.execute("UPSERT INTO rates (code, rate) VALUES ('GBP', 0.5)"),
        session.execute("DELETE FROM rates WHERE code IN ('EUR', 'GBP')"),
        session.execute("INSERT INTO rates (code) VALUES ('EUR')"),
        session.execute("DELETE FROM rates WHERE code = 'EUR'"),
    ]
    assert [(str(done), done.changed) for done in said] == [
        ("2 rows of Rates inserted", True),
        ("2 rows of Rates put", True),
        ("1 row of Rates updated", True),
        ("0 rows of Rates put; 1 as they were", False),
        ("2 rows of Rates deleted", True),
        ("1 row of Rates inserted", True),
        ("1 row of Rates deleted", True),
    ]
    assert rows(session) == [("USD", 3.0, None, 7, None)]
    assert session.catalog.tables["rates"].changes == 6


def test_an_insert_has_values_of_every_kind(session):
    session.execute("INSERT INTO rates VALUES ('a', 1 + 0.5, TIMESTAMP '2026-01-01 12:00:00', CAST('5' AS INT), 1 < 2)")
    session.execute("INSERT INTO rates VALUES ('b', 1, '2026-01-02', NULL, 'false')")
    assert rows(session) == [
        ("a", 1.5, datetime(2026, 1, 1, 12), 5, True),
        ("b", 1.0, datetime(2026, 1, 2), None, False),
    ]


def test_what_is_left_out_of_an_upsert_is_null(session):
    session.execute("INSERT INTO rates VALUES ('a', 1, NULL, 2, TRUE)")
    session.execute("UPSERT INTO rates (code, n) VALUES ('a', 3)")
    assert rows(session) == [("a", None, None, 3, None)]


@pytest.mark.parametrize(("kind", "one", "two"), [("INT", "7", "-7"), ("TIMESTAMP", "'2026-01-01'", "'2026-01-02'")])
def test_keys_of_other_kinds(session, kind, one, two):
    session.execute(f"CREATE TABLE other (v STRING, k {kind}, PRIMARY KEY (k))")
    session.execute(f"INSERT INTO other (k, v) VALUES ({one}, 'a'), ({two}, 'b')")
    session.execute(f"UPDATE other SET v = 'c' WHERE k = {two}")
    session.execute(f"DELETE FROM other WHERE k = {one}")
    assert session.table("other")["v"].to_pylist() == ["c"]


def test_tables_are_shown_and_described(session):
    session.execute("CREATE TABLE past (k INT, PRIMARY KEY (k)) NON RETROACTIVE")
    session.execute("INSERT INTO rates (code) VALUES ('a'), ('b')")
    shown = session.execute("SHOW TABLES")
    assert [shown[name].to_pylist() for name in ("name", "key", "retroactive", "rows", "changes")] == [
        ["past", "Rates"],
        ["k", "Code"],
        [False, True],
        [0, 2],
        [0, 1],
    ]
    told = session.execute("DESCRIBE rates")
    assert told["column"].to_pylist() == list(NAMES)
    assert told["type"].to_pylist() == ["string", "float", "timestamp", "int", "bool"]
    assert told["key"].to_pylist() == [True, False, False, False, False]


def test_if_not_exists(session):
    assert (
        str(session.execute("CREATE TABLE IF NOT EXISTS RATES (x INT PRIMARY KEY)")) == "table RATES was there already"
    )
    assert session.execute("DROP TABLE IF EXISTS rates").changed
    assert not session.execute("DROP TABLE IF EXISTS rates").changed
    assert shown(session, "SHOW TABLES").num_rows == 0


# --- what is loaded --------------------------------------------------------------------------------------------------


def test_a_load(session):
    loaded = pa.table({"Code": ["a", "b"], "rate": [1, 2], "since": [None, None], "n": [1, 2], "old": [True, None]})
    assert session.load_table("rates", loaded) == (1, 2, 0, 0, 0)
    assert session.load_table("RATES", {**loaded.to_pydict(), "n": [1, 3]}) == (2, 0, 1, 0, 1)
    assert session.load_table("rates", {"Code": ["a"], "n": [9]}, "update") == (3, 0, 1, 0, 0)
    assert rows(session) == [("a", 1.0, None, 9, True), ("b", 2.0, None, 3, None)]
    with pytest.raises(DuplicateKey, match=r"key 'b' \(row 1\) is in the table already"):
        session.load_table("rates", loaded.slice(0).set_column(0, "Code", pa.array(["c", "b"])), mode="insert")
    with pytest.raises(MissingColumn, match="'since'"):
        session.load_table("rates", {"Code": ["c"], "rate": [1.0]})
    with pytest.raises(NoSuchName, match="no table 'rate'; did you mean Rates"):
        session.load_table("rate", loaded)
    with pytest.raises(NoSuchName, match="no table 'sales'; it is a stream"):
        session.table("sales")


def test_a_change_stands_where_the_streams_are(session):
    table = session.catalog.tables["rates"]
    session.ingest("sales", {"ts": [1, 2, 3], "code": ["a", "b", "c"]})
    session.execute("INSERT INTO rates (code) VALUES ('a')")
    session.ingest("sales", {"ts": [4], "code": ["a"]})
    session.load_table("rates", {"Code": ["a"], "n": [1]}, "update")
    assert table.change_at("sales", np.arange(6)).tolist() == [0, 0, 0, 1, 2, 2]
    session.execute("DROP STREAM sales")
    session.execute("CREATE STREAM sales (ts TIMESTAMP, code STRING) TIMESTAMP BY ts")
    assert table.change_at("sales", np.arange(2)).tolist() == [2, 2]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "error", "said", "column"),
    [
        ("INSERT INTO rates (code) VALUES ('z'), ('a')", DuplicateKey, "key 'a' .* is in the table already", 41),
        ("INSERT INTO rates (code) VALUES ('z'), ('z')", DuplicateKey, "key 'z' .* is in the change twice", 41),
        ("UPDATE rates SET n = 1 WHERE code = 'z'", MissingKey, "key 'z' .* is not in the table", 37),
        ("DELETE FROM rates WHERE code IN ('a', 'z')", MissingKey, "key 'z' .* is not in the table", 39),
        ("DELETE FROM rates WHERE n = 5", BadClause, "WHERE takes the primary key of Rates, Code", 25),
        ("DELETE FROM rates WHERE cod = 'a'", NoSuchName, "no column 'cod'; did you mean Code", 25),
        ("DELETE FROM rates WHERE code = NULL", NullKey, "the primary key Code must have a value", 32),
        ("UPDATE rates SET code = 'b' WHERE code = 'a'", BadClause, "Code is the primary key, which a row keeps", 18),
        ("UPDATE rates SET n = 1, N = 2 WHERE code = 'a'", BadClause, "column n is given twice", 25),
        ("UPDATE rates SET n = 1.5 WHERE code = 'a'", TypeMismatch, "n takes an integer, and this is a float", 22),
        ("UPDATE rates SET n = 'x' WHERE code = 'a'", TypeMismatch, "'x' is not an integer", 22),
        ("UPDATE rates SET rate = 1 / (2 - 2) WHERE code = 'a'", DivisionByZero, "division by zero", 25),
        ("UPDATE rates SET since = 5 WHERE code = 'a'", TypeMismatch, "since takes a timestamp", 26),
        ("INSERT INTO rates VALUES ('z', 1)", BadClause, "a row has 2 values; Rates has 5 columns: Code, rate", 26),
        ("INSERT INTO rates (n) VALUES (1)", BadClause, "the primary key Code is not among the columns", 20),
        ("INSERT INTO rates (code, CODE) VALUES ('z', 'y')", BadClause, "column Code is given twice", 26),
        ("INSERT INTO rates (code, m) VALUES ('z', 1)", NoSuchName, "INSERT: no column 'm'", 26),
        ("INSERT INTO rates (code) VALUES (NULL)", NullKey, "Code must have a value", 34),
        ("INSERT INTO rates (code) VALUES (7)", TypeMismatch, "Code takes a string, and this is an integer", 34),
        ("UPDATE sales SET ts = 7 WHERE ts = 1", Unsupported, "sales is a stream, which only grows", 8),
        (f"INSERT INTO rates (code) VALUES ('{'y' * 40_000}')", ValueTooLong, "40,000 bytes", 13),
        ("CREATE TABLE sales (k INT PRIMARY KEY)", DuplicateName, "'sales' is a stream already", 14),
        ("CREATE STREAM rates (ts TIMESTAMP) TIMESTAMP BY ts", DuplicateName, "'rates' is a table already", 15),
        ("CREATE TABLE t (k INT, K STRING, PRIMARY KEY (k))", BadClause, "column K is given twice", 24),
        ("CREATE TABLE t (k INT, PRIMARY KEY (j))", NoSuchName, "PRIMARY KEY: no column 'j'", 37),
        ("CREATE TABLE t (k FLOAT PRIMARY KEY)", BadSchema, "'k' is of type float; it must be one of int", 17),
        ("DROP TABLE rate", NoSuchName, "no table 'rate'; did you mean Rates", 12),
        ("DESCRIBE rats", NoSuchName, "no stream, summary, table or query 'rats'; did you mean Rates", 10),
        ("ALTER QUERY rates DROP BUDGET", NoSuchName, "no query 'rates'; it is a table", 13),
    ],
)
def test_what_is_refused_says_where_and_changes_nothing(session, sql, error, said, column):
    session.execute("INSERT INTO rates (code, n) VALUES ('a', 5)")
    before = session.execute("SHOW TABLES")
    with pytest.raises(error, match=said) as caught:
        session.execute(sql)
    assert f"line 1, column {column}:" in str(caught.value)
    assert session.execute("SHOW TABLES") == before
    assert rows(session) == [("a", None, None, 5, None)]


def test_a_table_that_a_query_reads(session):
    session.execute(f"CREATE CONTINUOUS QUERY watch AS {JOINED}")
    with pytest.raises(InUse, match="table rates is needed by query watch"):
        session.execute("DROP TABLE rates")
    session.execute("DROP TABLE rates CASCADE")
    assert shown(session, "SHOW QUERIES").num_rows == 0
    assert shown(session, "SHOW TABLES").num_rows == 0


def test_many_statements_at_once_leave_a_whole_table(session):
    failed: list[BaseException] = []

    def work(which: int) -> None:
        try:
            for number in range(20):
                session.execute(f"UPSERT INTO rates (code, n) VALUES ('shared', {number}), ('{which}-{number}', 1)")
                session.ingest("sales", {"ts": [number], "code": ["shared"]})
                session.execute(f"DELETE FROM rates WHERE code = '{which}-{number}'")
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert session.table("rates")["Code"].to_pylist() == ["shared"]
    assert check_table(session.catalog.tables["rates"]) == []


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_store_keeps_tables_and_their_changes(tmp_path):
    with Session(store=Store.open(tmp_path)) as session:
        session.execute(MADE + " NON RETROACTIVE")
        session.execute("CREATE STREAM sales (ts TIMESTAMP, code STRING) TIMESTAMP BY ts")
        session.execute("INSERT INTO rates (code, n) VALUES ('a', 1), ('b', 2)")
        session.ingest("sales", {"ts": [1], "code": ["a"]})
        session.execute("UPDATE rates SET n = 3 WHERE code = 'a'")
        session.execute("CREATE TABLE gone (k INT PRIMARY KEY)")
        session.execute("DROP TABLE gone")
        session.execute(f"CREATE CONTINUOUS QUERY watch AS {JOINED}")
    with Session(store=Store.open(tmp_path)) as session:
        table = session.catalog.tables["rates"]
        assert rows(session) == [("a", None, None, 3, None), ("b", None, None, 2, None)]
        assert (table.changes, table.retroactive) == (2, False)
        assert table.change_at("sales", np.arange(2)).tolist() == [1, 2]
        assert shown(session, "SHOW TABLES")["name"].to_pylist() == ["Rates"]
        with pytest.raises(InUse):
            session.execute("DROP TABLE rates")
        session.execute("DROP TABLE rates CASCADE")
    with Session(store=Store.open(tmp_path)) as session:
        assert shown(session, "SHOW TABLES").num_rows == shown(session, "SHOW QUERIES").num_rows == 0


# --- ALTER QUERY -----------------------------------------------------------------------------------------------------


def statement(session: Session) -> str:
    (found,) = shown(session, "SHOW QUERIES")["statement"].to_pylist()
    return str(found)


def test_a_query_gets_another_budget(tmp_path):
    with Session(store=Store.open(tmp_path)) as session:
        session.execute(MADE)
        session.execute("CREATE STREAM sales (ts TIMESTAMP, code STRING) TIMESTAMP BY ts")
        session.execute(f"CREATE CONTINUOUS QUERY Watch AS {JOINED}")
        plain = statement(session)
        session.execute("ALTER QUERY watch SET BUDGET 20 MILLISECONDS")
        assert statement(session) == f"{plain} BUDGET 20 MILLISECONDS"
    with Session(store=Store.open(tmp_path)) as session:
        assert statement(session) == f"{plain} BUDGET 20 MILLISECONDS"
        assert shown(session, "SHOW QUERIES")["name"].to_pylist() == ["Watch"]
        session.execute("ALTER CONTINUOUS QUERY WATCH SET BUDGET 1 SECOND")
        assert statement(session) == f"{plain} BUDGET 1 SECONDS"
        session.execute("ALTER QUERY watch DROP BUDGET")
        assert statement(session) == plain
    with Session(store=Store.open(tmp_path)) as session:
        assert statement(session) == plain


def test_another_budget_keeps_the_view(session):
    session.execute("INSERT INTO rates (code, rate) VALUES ('a', 1.5)")
    session.execute(f"CREATE CONTINUOUS QUERY watch AS {JOINED}")
    session.ingest("sales", {"ts": [1], "code": ["a"]})
    with session.subscribe("watch") as watch:
        watch.poll(0)
        session.execute("ALTER QUERY watch SET BUDGET 500 MILLISECONDS")
        session.ingest("sales", {"ts": [2, 2], "code": ["a", "z"]})
        watch.poll(0)
        assert watch.snapshot().to_pydict() == {"code": ["a", "a"], "rate": [1.5, 1.5]}


@pytest.mark.parametrize(("budget", "said"), [("2 SECONDS", "1 SECOND at most"), ("0 SECONDS", "no time at all")])
def test_a_budget_that_cannot_be(session, budget, said):
    session.execute(f"CREATE CONTINUOUS QUERY watch AS {JOINED}")
    before = statement(session)
    with pytest.raises(BadClause, match=said) as caught:
        session.execute(f"ALTER QUERY watch SET BUDGET {budget}")
    assert (caught.value.line, caught.value.column) == (1, 30)
    assert statement(session) == before


def test_a_budget_that_cannot_be_kept_is_not_given(tmp_path, monkeypatch):
    with Session(store=Store.open(tmp_path)) as session:
        session.execute(MADE)
        session.execute("CREATE STREAM sales (ts TIMESTAMP, code STRING) TIMESTAMP BY ts")
        session.execute(f"CREATE CONTINUOUS QUERY watch AS {JOINED}")
        before = statement(session)
        with monkeypatch.context() as patch:
            patch.setattr(session.store, "put_query", _full)
            with pytest.raises(PromisingError, match="full"):
                session.execute("ALTER QUERY watch SET BUDGET 1 SECOND")
        assert statement(session) == before
        assert session.standing.view("watch").standing.budget is None


def _full(*_: object) -> None:
    raise PromisingError("full")


def test_what_a_repair_gave_up_has_no_say_in_later_changes(tmp_path):
    """A dropped stream's positions are put right for the changes of then, not for others of the same numbers."""
    stream = "CREATE STREAM s (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts"
    with promising.open(tmp_path, seed=1) as session:
        session.execute(stream)
        session.execute("CREATE TABLE t (item BIGINT, name VARCHAR, PRIMARY KEY (item)) NON RETROACTIVE")
        session.ingest("s", {"ts": [1, 2, 3], "item": [1, 1, 1]})
        for number in range(4):
            session.execute(f"UPSERT INTO t VALUES (1, 'v{number}')")
        session.execute("DROP STREAM s")
    damaged = sorted((tmp_path / FOLDER).glob("*/*.arrow"))[1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 255
    damaged.write_bytes(data)
    assert "changes 2 to 4" in " ".join(repair(tmp_path))
    seen = []
    for life in range(2):
        with promising.open(tmp_path, seed=1) as session:
            if not life:
                session.execute(stream)
                session.ingest("s", {"ts": [1, 2, 3], "item": [1, 1, 1]})
                session.execute("UPSERT INTO t VALUES (1, 'new')")
            seen.append(session.catalog.tables["t"].change_at("s", np.arange(4)).tolist())
    assert seen == [[1, 1, 1, 2]] * 2
