"""`ingest` takes the frames people have, with the same meaning in process and over the wire."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from promising.errors import (
    BadQuestion,
    BatchError,
    DuplicateColumn,
    EmptyBatch,
    MissingColumn,
    NullTime,
    PromisingError,
    UnknownColumn,
    WrongType,
)
from tests.conformance.sessions import Opened

STREAM = "CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE, shop STRING) TIMESTAMP BY ts"
ROWS = "SELECT ts, item, price, shop FROM s ORDER BY item"
TIMES = [datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 12, 0, 1), datetime(2024, 5, 1, 12, 0, 2)]
COLUMNS: dict[str, list[Any]] = {"ts": TIMES, "item": [1, 2, 3], "price": [1.5, None, 2.5], "shop": ["a", "b", None]}
TABLE = pa.table({**COLUMNS, "ts": pa.array(TIMES, pa.timestamp("us"))})


class Stream:
    """Anything of another library that exports an Arrow stream, of unknown length."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()).__arrow_c_stream__(requested_schema)


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=2))


def zoned(frame: pd.DataFrame) -> pd.DataFrame:
    frame["ts"] = frame["ts"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    return frame


FRIENDS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas, its index filtered": lambda: pd.DataFrame(COLUMNS, index=[7, 9, 4]),
    "pandas, zoned": lambda: zoned(pd.DataFrame(COLUMNS)),
    "pandas, categories": lambda: pd.DataFrame(COLUMNS).astype({"shop": "category"}),
    "pandas, nullable": lambda: pd.DataFrame(COLUMNS).convert_dtypes(),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars, zoned": lambda: pl.DataFrame(COLUMNS).with_columns(
        pl.col("ts").dt.replace_time_zone("UTC").dt.convert_time_zone("America/New_York")
    ),
    "polars, categories": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("shop").cast(pl.Categorical)),
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": reader,
    "stream": Stream,
    "rows": TABLE.to_pylist,
    "rows, zoned": lambda: [
        {**row, "ts": row["ts"].replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=9)))}
        for row in TABLE.to_pylist()
    ],
    "columns": lambda: COLUMNS,
}


@pytest.mark.parametrize("friend", FRIENDS)
def test_every_friend_means_the_same(opened: Opened, friend: str) -> None:
    session = opened()
    session.execute(STREAM)
    assert session.ingest("s", FRIENDS[friend]()).accepted == 3
    assert session.query(ROWS).to_arrow().to_pylist() == TABLE.to_pylist()


def frame(**changed: Any) -> pd.DataFrame:
    return pd.DataFrame({**COLUMNS, **changed})


BAD: list[tuple[Callable[[], Any], type[PromisingError], str]] = [
    (lambda: frame()[["ts", "item", "item", "price", "shop"]], DuplicateColumn, "'item' is in the frame 2 times"),
    (lambda: frame(colour=1), UnknownColumn, "'colour' is not in the schema"),
    (lambda: frame().rename(columns={"price": 5}), UnknownColumn, "5"),
    (lambda: frame()[["ts", "item", "shop"]], MissingColumn, "'price'"),
    (lambda: frame(item=[1, "x", 3]), BatchError, "'item', row 1: 'x'"),
    (lambda: frame(shop=["a", 7, None]), BatchError, "'shop', row 1"),
    (lambda: frame(ts=[TIMES[0], pd.NaT, TIMES[2]]), NullTime, "'ts', row 1"),
    (lambda: pl.DataFrame({**COLUMNS, "ts": [TIMES[0], None, TIMES[2]]}), NullTime, "'ts', row 1"),
    (
        lambda: [*TABLE.to_pylist(), {"ts": TIMES[0], "item": 1, "price": 1.0}],
        MissingColumn,
        "row 3 has no column 'shop'",
    ),
    (lambda: [*TABLE.to_pylist(), {**TABLE.to_pylist()[0], "x": 1}], UnknownColumn, "row 3 has column 'x'"),
    (lambda: [TABLE.to_pylist()[0], 5], WrongType, "row 1 is a int"),
    (lambda: [{**row, "ts": None} for row in TABLE.to_pylist()], NullTime, "'ts', row 0"),
    (lambda: [], EmptyBatch, "no tuples"),
    (lambda: frame().iloc[:0], EmptyBatch, "no tuples"),
    (lambda: pa.RecordBatchReader.from_batches(TABLE.schema, []), EmptyBatch, "no tuples"),
    (
        lambda: pl.DataFrame({**COLUMNS, "item": pl.Series([object(), 2, 3], dtype=pl.Object)}),
        WrongType,
        "'item' is int",
    ),
    (lambda: 5, WrongType, "a pandas or Polars frame"),
    (lambda: pl.DataFrame(COLUMNS).lazy(), WrongType, "not LazyFrame"),  # and no warning, which its columns give
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_frames_name_column_and_row_and_change_nothing(opened: Opened, case: int) -> None:
    make, error, said = BAD[case]
    session = opened()
    session.execute(STREAM)
    with pytest.raises(error) as caught:
        session.ingest("s", make())
    assert said in str(caught.value)
    assert session.query("SELECT count(*) AS n FROM s").to_arrow().to_pylist() == [{"n": 0}]


def test_a_reader_is_read_batch_by_batch(opened: Opened) -> None:
    session = opened()
    session.execute(STREAM)
    late = TABLE.set_column(0, "ts", pa.array([None] * 3, pa.timestamp("us")))
    given = pa.RecordBatchReader.from_batches(TABLE.schema, [*TABLE.to_batches(), *late.to_batches()])
    with pytest.raises(NullTime, match="row 0"):
        session.ingest("s", given)
    assert session.query("SELECT count(*) AS n FROM s").to_arrow().to_pylist() == [{"n": 3}]
    with pytest.raises(BadQuestion, match="reader"):
        session.ingest("s", reader(), producer="till", sequence=1)


def test_a_table_of_plain_memory_is_not_copied() -> None:
    from promising.index.frames import as_batch  # noqa: PLC0415

    prices = np.arange(4.0)
    made = as_batch(pd.DataFrame({"price": prices}, copy=False))
    assert made["price"].buffers()[1].address == prices.ctypes.data
