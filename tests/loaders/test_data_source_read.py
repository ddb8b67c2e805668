"""`spark.read` of a stream, part of which is in cold files: all rows, those of a filter for fewer bytes, the promising
ones first."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql")

from pyspark.sql import datasource as filters
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import StructType

import promising.index.log
from promising.errors import BadSettings, DuplicateColumn, PromisingError, UnknownColumn, WrongType
from promising.index.scan_plan import Piece
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders import stream_reader
from promising.loaders.data_source import ServiceOptions, Source
from promising.loaders.spark_sql import spark_sql
from promising.loaders.stream_reader import Reader, Share, grouped
from promising.query.session import Session
from promising.spark import register
from promising.testing.service import running

SECOND = 1_000_000
EACH, PARTS = 400, 10
ROWS = EACH * PARTS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A stream of which four fifths are cold, in small files of small row groups."""
    draw = random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.index.log, "CHUNK", 128)
        patch.setattr("promising.index.storage.cold_layout.SMALL", 32)
        options = StoreOptions(hot_tuples=0, run_tuples=512, sync="relaxed")
        store = Store.open(tmp_path_factory.mktemp("kept"), seed=3, clock=lambda: 1 << 60, options=options)
        with Session(clock=lambda: 1 << 60, store=store, written=spark_sql) as made:
            made.execute(
                "CREATE STREAM s (id BIGINT, item BIGINT, Word VARCHAR, ts TIMESTAMP, price DOUBLE, ok BOOLEAN)"
                " TIMESTAMP BY ts LATENESS 5 SECONDS"
            )
            for key in ("item", "Word"):
                made.execute(
                    f"CREATE SUMMARY by_{key} ON s ({key}) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 6)"
                    " OPTIONS (buckets = 4, depth = 3, width = 8, maxlength = 256)"
                )
            for part in range(PARTS):
                items = [min(int(draw.paretovariate(0.8)), 300) for _ in range(EACH)]
                made.ingest(
                    "s",
                    {
                        "id": list(range(part * EACH, (part + 1) * EACH)),
                        "item": items,
                        "Word": [f"it's {item}" for item in items],
                        "ts": sorted((part * 20 + draw.random() * 20) * SECOND // 1 for _ in items),
                        "price": [None if draw.random() < 0.1 else draw.random() for _ in items],
                        "ok": [draw.random() < 0.5 for _ in items],
                    },
                )
                if part == 7:
                    store.checkpoint()
            yield made


def rows(session: Session, where: str = "TRUE") -> Counter[int]:
    return Counter(session.query(f"SELECT id FROM s WHERE {where}").to_arrow()["id"].to_pylist())


class Here(Source):
    """The data source over a session of this process."""

    held: Session

    def connection(self) -> Callable[[], AbstractContextManager[ServiceOptions]]:
        return lambda: nullcontext(self.held)


def reader(session: Session, schema: StructType | None = None, /, **options: str) -> Reader:
    made = Here(CaseInsensitiveDict({"stream": "s", **options}))
    made.held = session
    return made.reader(made.schema() if schema is None else schema)


def taken(made: Reader, filters: list[Any] | None = None) -> tuple[list[Share], pa.Table]:
    """What Spark would do: the partitions, and what they give."""
    if filters is not None:
        assert list(made.pushFilters(filters)) == filters  # Spark has to look at all of them again
    found = made.partitions()
    shares = [share for share in found if isinstance(share, Share)]
    batches = [batch for share in found for batch in made.read(share)]
    return shares, pa.Table.from_batches(batches, made.schema)


def bytes_of(shares: list[Share]) -> int:
    return sum(share.bytes for share in shares)


def test_all_rows_come_once(session: Session):
    shares, table = taken(reader(session))
    assert Counter(table["id"].to_pylist()) == rows(session)
    assert sum(rows(session).values()) == ROWS
    assert any(share.pieces for share in shares)
    assert any(share.warm for share in shares)
    whole = session.query("SELECT * FROM s").to_arrow()
    order = sorted(table.to_pylist(), key=lambda row: row["id"])
    expected = sorted(whole.to_pylist(), key=lambda row: row["id"])
    for found, wanted in zip(order, expected, strict=True):
        assert found == wanted | {"ts": wanted["ts"].replace(tzinfo=UTC)}


LATER = EPOCH + timedelta(seconds=50)
PUSHED = [
    ([filters.EqualTo(("item",), 7)], "item = 7"),
    ([filters.In(("item",), (250, 9, None))], "item IN (250, 9)"),
    ([filters.EqualTo(("Word",), "it's 3")], "Word = 'it''s 3'"),
    ([filters.GreaterThanOrEqual(("ts",), LATER + timedelta(seconds=40))], "ts >= '1970-01-01 00:01:30'"),
    (
        [filters.GreaterThan(("ts",), LATER), filters.LessThan(("ts",), LATER + timedelta(microseconds=7_500_001))],
        "ts > '1970-01-01 00:00:50' AND ts < '1970-01-01 00:00:57.500001'",
    ),
    ([filters.LessThanOrEqual(("ts",), datetime(1970, 1, 1, 0, 0, 12))], "ts <= '1970-01-01 00:00:12'"),
    ([filters.LessThan(("id",), 100)], "id < 100"),
    ([filters.EqualTo(("item",), 7), filters.LessThan(("ts",), LATER)], "item = 7 AND ts < '1970-01-01 00:00:50'"),
]


@pytest.mark.parametrize(("filters", "where"), PUSHED)
def test_filters_read_fewer_bytes(session: Session, filters: list[Any], where: str):
    whole, _ = taken(reader(session))
    shares, table = taken(reader(session, pushdown="true"), filters)
    assert Counter(table["id"].to_pylist()) == rows(session, where)
    assert 0 < table.num_rows < ROWS
    assert bytes_of(shares) < bytes_of(whole)


@pytest.mark.parametrize(
    "found",
    [
        filters.Not(filters.EqualTo(("item",), 7)),
        filters.EqualTo(("price",), 0.5),
        filters.EqualTo(("ok",), True),
        filters.GreaterThan(("Word",), "a"),
        filters.EqualNullSafe(("item",), None),
        filters.IsNotNull(("item",)),
        filters.StringStartsWith(("Word",), "it"),
        filters.In(("item",), (None,)),
        filters.EqualTo(("item", "inner"), 7),
    ],
)
def test_other_filters_are_left_to_spark(session: Session, found: Any):
    made = reader(session, pushdown="true")
    assert list(made.pushFilters([found])) == [found]
    assert made.conditions == []


ASKED = [
    ({"start": "1970-01-01T00:01:30Z"}, "ts >= '1970-01-01 00:01:30'"),
    (
        {"start": "1970-01-01 00:00:50", "end": "1970-01-01T05:30:57.500001+05:30"},
        "ts >= '1970-01-01 00:00:50' AND ts < '1970-01-01 00:00:57.500001'",
    ),
    ({"keys": '{"ITEM": [250, 9]}'}, "item IN (250, 9)"),
    (
        {"keys": '{"word": ["it\'s 3"], "item": [3, 4]}', "end": "1970-01-01T00:01"},
        "item = 3 AND ts < '1970-01-01 00:01'",
    ),
]


@pytest.mark.parametrize(("options", "where"), ASKED)
def test_options_read_fewer_bytes(session: Session, options: dict[str, str], where: str):
    whole, _ = taken(reader(session, columns="id"))
    shares, table = taken(reader(session, None, columns="id", **options))
    assert table.column_names == ["id"]
    assert Counter(table["id"].to_pylist()) == rows(session, where)
    assert 0 < table.num_rows < ROWS
    assert sum(len(p.groups) for s in shares for p in s.pieces) < sum(len(p.groups) for s in whole for p in s.pieces)


def test_more_keys_than_a_statement_holds_are_left_out_by_the_reader(session: Session):
    _, table = taken(reader(session, keys=json.dumps({"item": list(range(5, 40_000))})))
    assert Counter(table["id"].to_pylist()) == rows(session, "item >= 5")


def test_columns_that_are_not_wanted_are_not_read(session: Session):
    whole, _ = taken(reader(session))
    shares, table = taken(reader(session, columns="WORD, id", pushdown="true"), [filters.EqualTo(("Word",), "it's 3")])
    assert table.column_names == ["Word", "id"]
    assert Counter(table["id"].to_pylist()) == rows(session, "Word = 'it''s 3'")
    _, few = taken(reader(session, columns="id"))
    assert Counter(few["id"].to_pylist()) == rows(session)
    assert bytes_of(shares) < bytes_of(whole) / 2


def test_a_schema_may_ask_for_what_a_clock_shows(session: Session):
    made = reader(session, StructType().add("TS", "timestamp_ntz").add("id", "long"), pushdown="true")
    _, table = taken(made, [filters.GreaterThan(("TS",), datetime(1970, 1, 1, 0, 2))])
    assert table.schema.field("TS").type == pa.timestamp("us")
    assert Counter(table["id"].to_pylist()) == rows(session, "ts > '1970-01-01 00:02:00'")


@pytest.mark.parametrize("direction", ["desc", "asc", "weighted"])
def test_the_first_rows_of_a_preference_are_those_of_sql(session: Session, direction: str):
    _, table = taken(reader(session, columns="id, item", preference=f"{direction} item", limit="300"))
    sql = f"SELECT id, item FROM s WITH PREFERENCE {direction} SUMMARY.Estimate.Count(item) LIMIT 300"
    assert table["id"].to_pylist() == session.query(sql).to_arrow()["id"].to_pylist()
    (often, most), *_ = Counter(session.query("SELECT item FROM s").to_arrow()["item"].to_pylist()).most_common()
    assert most > 300
    assert (set(table["item"].to_pylist()) == {often}) == (direction == "desc")


def test_conditions_too_long_for_a_statement_leave_the_first_rows_as_they_are(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    asked = {"columns": "id, item", "preference": "desc item", "limit": "3", "keys": '{"item": [2, 3, 5]}'}
    _, table = taken(reader(session, **asked))
    monkeypatch.setattr(stream_reader, "LONGEST_CONDITIONS", 1)
    _, again = taken(reader(session, **asked))
    assert again == table
    assert set(table["item"].to_pylist()) == {2}


def test_a_preference_alone_leaves_nothing_out(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_reader, "BYTES", 3_000)
    shares, table = taken(reader(session, preference="desc item"))
    assert Counter(table["id"].to_pylist()) == rows(session)
    assert len(shares) > 5


def test_a_limit_counts_rows_that_pass_the_filters(session: Session):
    _, table = taken(reader(session, limit="5", pushdown="true"), [filters.EqualTo(("item",), 7)])
    assert table["item"].to_pylist() == [7] * 5
    _, table = taken(reader(session, limit="0"))
    assert table.num_rows == 0
    _, table = taken(reader(session, limit="1000000"))
    assert table.num_rows == ROWS


def test_nothing_to_read_is_no_rows(session: Session):
    made = reader(session, keys='{"item": [12345]}')
    _, table = taken(made)
    assert table.num_rows == 0
    assert list(made.read(InputPartition(None))) == []


def test_pieces_are_cut_and_put_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_reader, "BYTES", 100)
    given = [Piece("a", {}, list(range(10)), 400, 1.0), *(Piece(str(n), {}, [0], 30, 0.5) for n in range(4))]
    found = list(grouped(given))
    assert [[(part.path, part.groups) for part in group] for group in found] == [
        *([("a", [at, at + 1])] for at in range(0, 10, 2)),
        [("0", [0]), ("1", [0]), ("2", [0])],
        [("3", [0])],
    ]
    assert sum(part.bytes for group in found for part in group) == 520


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"stream": ""}, BadSettings, "the option `stream` is missing"),
        ({"stream": "nowhere"}, PromisingError, "nowhere"),
        ({"stream": "by_item"}, BadSettings, "by_item is no stream"),
        ({"columns": "id, idd"}, UnknownColumn, "no column 'idd'; its columns are id, item"),
        ({"columns": "id, ID"}, DuplicateColumn, "twice"),
        ({"preference": "best item"}, BadSettings, "one of desc, asc, weighted"),
        ({"preference": "desc"}, BadSettings, "'desc item'"),
        ({"preference": "desc price"}, BadSettings, "needs a summary on price"),
        ({"limit": "many"}, BadSettings, "a number of rows, not 'many'"),
        ({"limits": "5"}, BadSettings, "no option `limits` to read by"),
        ({"start": "yesterday"}, BadSettings, "a time as 2024-01-31T12:00:00Z, not 'yesterday'"),
        ({"keys": "7"}, BadSettings, r"is JSON as {\"item_id\": \[7, 9\]}, not '7'"),
        ({"keys": '{"item": ["7"]}'}, WrongType, r"not \['7'\] for item \(int\)"),
        ({"keys": '{"item": []}'}, WrongType, r"not \[\] for item"),
        ({"keys": '{"price": [1.5]}'}, WrongType, "price"),
        ({"pushdown": "yes"}, BadSettings, "`pushdown` is one of true, false"),
    ],
)
def test_wrong_options_are_told(session: Session, options: dict[str, str], error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        reader(session, None, **options)


def test_a_schema_that_does_not_fit_is_told(session: Session):
    with pytest.raises(WrongType, match="column item is string, but the stream has item as int"):
        reader(session, StructType().add("item", "string"))
    with pytest.raises(UnknownColumn, match="no column 'weight'"):
        reader(session, StructType().add("weight", "double"))


def ids(frame: Any) -> Counter[int]:
    return Counter(frame.select("id").toArrow()["id"].to_pylist())


@pytest.mark.spark
def test_through_spark(spark: Any, session: Session, tmp_path: Path):
    """The zone of the session is not UTC: literals in it mean what they mean there."""
    register(spark)
    with running(session=session) as address:
        source = spark.read.format("promising").option("address", address).option("stream", "s")
        frame = source.load()
        assert frame.schema.simpleString() == (
            "struct<id:bigint,item:bigint,Word:string,ts:timestamp,price:double,ok:boolean>"
        )
        condition = "ts >= '1970-01-01 05:31:30' AND item IN (1, 2) AND price < 0.5"
        wanted = rows(session, "ts >= '1970-01-01 00:01:30' AND item IN (1, 2) AND price < 0.5")
        assert ids(frame.where(condition)) == wanted
        assert ids(frame) == rows(session)  # the same DataFrame again, without its filter
        pushing = source.option("pushdown", "true").option("columns", "id, ts, item, price")
        assert ids(pushing.load().where(condition)) == wanted
        best = source.option("preference", "desc item").option("limit", 50).load()
        assert best.count() == 50
        (most, *_) = Counter(session.query("SELECT item FROM s").to_arrow()["item"].to_pylist()).most_common()
        assert [row.item for row in best.select("item").distinct().collect()] == [most[0]]
        with pytest.raises(Exception, match="needs a summary on price"):
            source.option("preference", "desc price").load().count()
