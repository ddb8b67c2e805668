"""`df.write` into a running service: every row once, whatever fails, and clear words before any task runs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql")

from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from promising.errors import (
    BadSettings,
    DuplicateColumn,
    MissingColumn,
    NoSuchName,
    PromisingError,
    TooFarAhead,
    Unauthenticated,
    Unavailable,
    UnknownColumn,
    WrongType,
)
from promising.loaders.sink import BATCHES, Place, Writer, send
from promising.query.session import Session
from promising.server.access_tokens import TokenStore
from promising.settings import Auth, Settings
from promising.spark import PromisingSource, register
from promising.testing.service import running
from tests.loaders.data_source_sales import NOW, ROWS, START, numbers, sales, stocked

FIELDS = {"ts": "timestamp", "item": "integer", "price": "double", "name": "string"}


@pytest.fixture
def session() -> Iterator[Session]:
    with stocked() as made:
        yield made


@pytest.fixture
def address(session: Session) -> Iterator[str]:
    with running(session=session) as target:
        yield target


# --- on the driver ---------------------------------------------------------------------------------------------------


def writer(place: str, fields: dict[str, str] = FIELDS, overwrite: bool = False, /, **options: str) -> Writer:
    """What Spark has made before any task runs."""
    source = PromisingSource(CaseInsensitiveDict({"address": place, "stream": "s", **options}))
    schema = StructType()
    for name, kind in fields.items():
        schema.add(name, kind)
    return source.writer(schema, overwrite)


WRONG_OPTIONS: list[tuple[dict[str, str], type[PromisingError], str]] = [
    ({"stream": " "}, BadSettings, r"the option `stream` is missing: .option\('stream', 'store1'\)"),
    ({"address": ""}, BadSettings, "the option `address` is missing"),
    ({"stream": "nowhere"}, NoSuchName, "nowhere"),
    ({"address": "127.0.0.1:1"}, Unavailable, "cannot reach the service"),
    ({"sream": "s"}, BadSettings, "no option `sream` to write by; there are address, stream"),
    ({"path": "s"}, BadSettings, "no option `path` to write by"),
    ({"strict": "maybe"}, BadSettings, "`strict` is one of true, false, not 'maybe'"),
    ({"ca": "/nowhere.pem"}, BadSettings, "ca: cannot read '/nowhere.pem'"),
    ({"certificate": __file__}, BadSettings, "certificate and key go together"),
]


def test_wrong_options_are_told(address: str):
    for options, error, said in WRONG_OPTIONS:
        with pytest.raises(error, match=said):
            writer(address, FIELDS, False, **options)


WRONG_COLUMNS: list[tuple[dict[str, str | None], type[PromisingError], str]] = [
    (
        {"price": None},
        MissingColumn,
        r"has a column price \(float\), the DataFrame has not; its columns are ts, it",
    ),
    ({"extra": "long"}, UnknownColumn, "no column 'extra'; its columns are ts, item, price, name"),
    ({"ITEM": "long"}, DuplicateColumn, "item and ITEM are one column"),
    ({"price": "decimal(10,2)"}, WrongType, r"column price is decimal\(10,2\), .* col\('price'\).cast\('double'\)"),
    ({"ts": "string"}, WrongType, "timestamp or timestamp_ntz is wanted"),
    ({"item": "double"}, WrongType, "column item is double, but the stream has item as int"),
    ({"name": "binary"}, WrongType, "string is wanted"),
]


def test_columns_that_do_not_fit_are_told(address: str):
    for change, error, said in WRONG_COLUMNS:
        fields = {name: kind for name, kind in (FIELDS | change).items() if kind is not None}
        with pytest.raises(error, match=said):
            writer(address, fields)


def test_overwriting_is_refused(address: str):
    with pytest.raises(BadSettings, match="cannot be overwritten"):
        writer(address, FIELDS, True)


def batch(*seconds: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "ts": pa.array([(START + s) * 1_000_000 for s in seconds], pa.timestamp("us", "Asia/Kolkata")),
            "item": pa.array(seconds, pa.int32()),
            "price": pa.array(seconds, pa.float64()),
            "name": [f"n{s}" for s in seconds],
        }
    )


def test_a_token_goes_along(session: Session, tmp_path: Path):
    store = TokenStore(tmp_path / "tokens")
    secret = store.create("till", "ingest")
    store.close()
    with running(Settings(listen="127.0.0.1:0", auth=Auth(tokens=tmp_path / "tokens")), session) as address:
        with pytest.raises(Unauthenticated):
            writer(address)
        made = writer(address, token=secret)
        assert secret not in repr(made.target)
        send(made.target, Place(made.job, 0, 0), [batch(1, 2)])
    assert numbers(session) == [1, 2]


def test_strict_fails_what_would_be_left_out(session: Session, address: str):
    ahead = NOW // 1_000_000 - START + 4_000
    given = [batch(1, 2, ahead)]
    sent = send(writer(address).target, Place("one", 0, 0), given)
    assert (sent.accepted, sent.refused) == (2, {"too_far_ahead": 1})
    with pytest.raises(TooFarAhead):
        send(writer(address, strict="TRUE").target, Place("other", 0, 0), given)


def test_attempts_at_the_same_time_add_nothing_twice(session: Session, address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("promising.loaders.sink.SMALL", 2_000)
    target = writer(address).target
    given = [batch(*range(1_000))]
    start = Barrier(3)

    def attempt(_: int) -> tuple[int, int]:
        start.wait()
        sent = send(target, Place("one", 0, 0), given)
        return sent.rows, sent.accepted

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(attempt, range(3))) == [(1_000, 1_000)] * 3
    assert numbers(session) == list(range(1_000))


# --- through Spark ---------------------------------------------------------------------------------------------------


def save(frame: Any, address: str, **options: str) -> None:
    made = frame.write.format("promising").mode("append").option("address", address).option("stream", "s")
    made.options(**options).save()


@pytest.mark.spark
def test_every_row_arrives_as_it_was(spark: Any, session: Session, address: str):
    """The zone of the session is not UTC: an instant is that instant, and a clock without a zone one in UTC."""
    register(spark)
    save(sales(spark), address)
    assert numbers(session) == list(range(ROWS))
    save(
        sales(spark, 1, 1).selectExpr("timestamp_ntz'2024-01-01 00:00:10' AS TS", "item", "price", "'n1' AS name"),
        address,
    )
    rows = session.query("SELECT item, price, name FROM s WHERE ts = '2024-01-01 00:00:10' ORDER BY name").to_arrow()
    assert rows.to_pylist() == [
        {"item": 0, "price": 0.0, "name": "n1"},
        {"item": 3, "price": 2.5, "name": "n10"},
    ]
    with pytest.raises(Exception, match="cannot be overwritten"):
        sales(spark).write.format("promising").options(address=address, stream="s").mode("overwrite").save()


@pytest.fixture
def lossy(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The second batch of each partition comes in, but whoever brings it for the first time does not hear of that."""
    lost: list[int] = []
    stream = session.stream("s")
    append = stream.append

    def losing(*given: Any, **more: Any) -> Any:
        added = append(*given, **more)
        if more["sequence"] % BATCHES == 2 and more["sequence"] not in lost:
            lost.append(more["sequence"])
            raise RuntimeError("the service stumbles after the batch is in")
        return added

    monkeypatch.setattr(stream, "append", losing)
    return lost


@pytest.mark.spark
def test_tasks_that_fail_before_or_after_they_sent_add_nothing_twice(
    spark: Any, session: Session, address: str, lossy: list[int]
):
    """Every partition fails once after two of its batches are in, one of them before that as well; when it is tried
    again, its rows come in another order, as those of a shuffle may."""

    def turned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        table = pa.Table.from_batches(batches)
        order = range(table.num_rows)[:: -1 if context.attemptNumber() == 1 else 1]
        yield from table.take(pa.array(order)).combine_chunks().to_batches()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("this attempt fails when all its rows went through")

    register(spark)
    frame = sales(spark)
    save(frame.mapInArrow(turned, frame.schema), address)
    assert len(lossy) == 2
    assert numbers(session) == list(range(ROWS))


@pytest.mark.spark
def test_a_job_that_failed_is_finished_by_its_name(spark: Any, session: Session, address: str):
    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            raise RuntimeError("no attempt gets on")
        yield from batches

    register(spark)
    frame = sales(spark)
    with pytest.raises(Exception, match="no attempt gets on"):
        save(frame.mapInArrow(cut, frame.schema), address, job="monday")
    assert set(numbers(session)) <= set(range(ROWS // 2))  # the other task may have been stopped half-way
    save(frame, address, job="monday")
    assert numbers(session) == list(range(ROWS))
