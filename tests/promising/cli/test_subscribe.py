"""`subscribe`, `load-table`, and continuous queries in `status` and `top`."""

import json
import re
import signal

import pyarrow as pa
import pyarrow.parquet
import pytest

import promising
from tests.promising.cli.running import PATIENCE, START, Terminal, program

SECOND = 1_000_000


@pytest.fixture(scope="module")
def standing(stores):
    """A stream `live` with two queries over it that never end within a test, and a table `names`."""
    with promising.connect(stores) as session:
        session.execute("CREATE STREAM live (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        session.execute("CREATE CONTINUOUS QUERY dear AS SELECT item, price FROM live WHERE price > 5 WINDOW 30 DAYS")
        session.execute(
            "CREATE CONTINUOUS QUERY busy AS SELECT item, count(*) AS n FROM live GROUP BY item WINDOW 30 DAYS"
        )
        session.execute("CREATE CONTINUOUS QUERY all_of_it AS SELECT item FROM live")
        session.execute("CREATE TABLE names (item BIGINT, name VARCHAR, PRIMARY KEY (item))")
        put(session, 1, 9)
    return stores


def put(session, *prices):
    rows = {"ts": [START + SECOND] * len(prices), "item": [1] * len(prices), "price": [float(p) for p in prices]}
    session.ingest("live", rows)


def test_the_view_once(cli, standing):
    rows = [json.loads(line) for line in cli.ok("subscribe", "dear", "--once", "--output", "json").splitlines()]
    assert {"item": 1, "price": 9.0} in rows
    assert cli.ok("subscribe", "busy", "--once").splitlines()[0].split() == ["item", "n"]
    assert cli.ok("subscribe", "dear", "--once", "--output", "csv").startswith('"item","price"')


def test_an_order_by_a_column_that_is_not_there_suggests_one(cli, standing):
    told = cli("subscribe", "dear", "--once", "--order-by", "pric")
    assert (told.code, told.out) == (1, "")
    assert told.err.endswith("the view has no column 'pric'; did you mean price?\n")


def test_changes(cli, standing):
    told = cli("subscribe", "dear", "--changes", "1")
    assert told.code == 0
    first, *lines = told.out.splitlines()
    assert first.endswith(", the whole view")
    assert re.fullmatch(r"\+ #\d+  item=1 price=9  until 20\d\d-.*", lines[0])
    assert told.err.startswith("Go on with: promising subscribe dear --deltas --resume ")
    token = told.err.split()[-1]
    with promising.connect(standing) as session:
        put(session, 77, 2)
    change = json.loads(
        cli.ok("subscribe", "dear", "--deltas", "--resume", token, "--changes", "1", "--output", "json", "--quiet")
    )
    assert (change["reset"], change["retractions"]) == (False, [])
    assert [part["row"] for part in change["inserts"]] == [{"item": 1, "price": 77.0}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("subscribe", "dear", "--once", "--deltas"), "--once prints the view"),
        (("subscribe", "dear", "--resume", "x"), "--resume needs --deltas"),
        (("subscribe", "dear", "--output", "csv"), "changes have no form in csv"),
    ],
)
def test_what_makes_no_sense(cli, standing, words, said):
    told = cli(*words)
    assert (told.code, said in re.sub(r"[│\s]+", " ", told.err)) == (2, True), told


def test_queries_that_are_not_there_and_views_that_are_none(cli, standing):
    told = cli("subscribe", "nothing", "--deltas")
    assert (told.code, "nothing" in told.err) == (1, True)
    told = cli("subscribe", "all_of_it", "--once")
    assert (told.code, "without WINDOW has no view" in told.err) == (1, True)
    told = cli("subscribe", "dear", "--deltas", "--resume", "nonsense")
    assert (told.code, "token" in told.err) == (1, True)


def test_ctrl_c_ends_changes_in_order(standing):
    with program("subscribe", "busy", "--output", "json", "--deltas", PROMISING_TARGET=standing) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["reset"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "--resume" in err


def test_on_a_terminal_the_view_is_drawn_again(standing):
    with Terminal("subscribe", "busy", PROMISING_TARGET=standing) as terminal:
        terminal.until("busy, 1 row, at 20")
        with promising.connect(standing) as session:
            session.ingest("live", {"ts": [START + SECOND], "item": [4242], "price": [1.0]})
        terminal.until("4242")
        terminal.press("\x03")
        assert terminal.end() == 0


def test_status_and_top_tell_of_continuous_queries(cli, standing):
    cli.ok("subscribe", "dear", "--once")  # so that it has been brought up to date
    told = cli.ok("status")
    assert re.search(r"standing +\d+ continuous queries, \d+ subscriptions?; ", told)
    assert re.search(r"^busy +\d+ ", told, re.MULTILINE)
    facts = {query["name"]: query for query in json.loads(cli.ok("status", "--output", "json"))["standing"]}
    assert facts["dear"]["view_rows"] >= 1
    assert facts["dear"]["failure"] == ""
    assert "continuous query" in cli.ok("top", "--once", "--every", "50ms")
    sample = json.loads(cli.ok("top", "--every", "300ms", "--output", "json"))
    (query,) = [query for query in sample["standing"] if query["name"] == "busy"]
    assert query["cpu"] >= 0 and query["rows_per_second"] >= 0
    assert sample["ticks_per_second"] >= 0


def test_load_table(cli, standing, tmp_path):
    (tmp_path / "names.csv").write_text("Item,called,more\n1,one,x\n2,,x\n")
    told = cli("load-table", "names", "names.csv", "--map", "name=called", "--mode", "insert")
    assert (told.code, told.out) == (0, "2 rows into names, 0 updated, 0 unchanged\n")
    assert "Not used: more." in told.err
    told = cli("load-table", "names", "names.csv", "--map", "name=called", "--mode", "insert")
    assert told.code == 1
    pyarrow.parquet.write_table(pa.table({"item": [2, 3], "name": ["two", "three"]}), tmp_path / "more.parquet")
    facts = json.loads(cli.ok("load-table", "names", "more.parquet", "--output", "json"))
    assert (facts["inserted"], facts["updated"], facts["change"]) == (1, 1, 2)
    (tmp_path / "other.jsonl").write_text('{"item": 3, "name": "trois"}\n')
    assert "1 updated" in cli.ok("load-table", "names", "other.jsonl", "--mode", "update")
    for words, said in (
        (("load-table", "name", "other.jsonl"), "did you mean names?"),
        (("load-table", "names", "names.csv"), "has no field for name of table names"),
        (("load-table", "names", "nowhere.csv"), "nowhere.csv"),
    ):
        told = cli(*words)
        assert (told.code, said in told.err) == (1, True), told


def test_the_view_ordered_and_limited(cli, standing):
    with promising.connect(standing) as session:
        put(session, 31, 32, 33)
    shown = cli.ok("subscribe", "dear", "--once", "--order-by", "Price", "--limit", "2", "--output", "json")
    prices = [json.loads(line)["price"] for line in shown.splitlines()]
    assert len(prices) == 2 and prices == sorted(prices, reverse=True) and prices[0] >= 33
    shown = cli.ok("subscribe", "dear", "--once", "--order-by", "price:asc", "--output", "json")
    prices = [json.loads(line)["price"] for line in shown.splitlines()]
    assert len(prices) >= 3 and prices == sorted(prices)
    told = cli("subscribe", "dear", "--once", "--order-by", "cost")
    assert (told.code, "no column 'cost'; there are item, price" in told.err) == (1, True)
    assert cli("subscribe", "dear", "--deltas", "--limit", "3").code == 2
    assert cli("subscribe", "dear", "--limit", "3", "--changes", "1").code == 2, "no terminal, so no view"
