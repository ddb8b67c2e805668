"""Tuples in: what is taken, what is refused and in which words, and that nothing is added twice."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import promising.errors as e
from promising.index import Appended
from promising.query import Session
from promising.testing import ManualClock
from tests.conformance.sessions import Opened

SECOND = 1_000_000
NOW = 1_000 * SECOND

Both = Callable[..., tuple[Session, Session]]


def prepared(session: Session) -> Session:
    """`s` with a column of every type and keys `k` and `name`; `free` with none."""
    columns = "(ts TIMESTAMP, k INT, name VARCHAR, f DOUBLE, b BOOLEAN, at TIMESTAMP, n INT)"
    for stream in ("s", "free"):
        session.execute(
            f"CREATE STREAM {stream} {columns} TIMESTAMP BY ts KEEP {'80 SECONDS' if stream == 's' else 'ALL'}"
        )
    for key in ("k", "name"):
        session.execute(f"CREATE SUMMARY by_{key} ON s ({key}) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)")
    return session


@pytest.fixture
def session(opened: Opened) -> Session:
    return prepared(opened(clock=ManualClock(NOW), seed=3))


def batch(**columns: Any) -> dict[str, Any]:
    """Two tuples that are right, but for what is given."""
    right: dict[str, Any] = {
        "ts": [900 * SECOND, 901 * SECOND],
        "k": [1, 2],
        "name": ["one", "two"],
        "f": [0.5, 1.5],
        "b": [True, False],
        "at": [1, 2],
        "n": [7, None],
    }
    return right | columns


def table(**columns: Any) -> pa.Table:
    return pa.table(
        {name: c if isinstance(c, pa.ChunkedArray) else pa.array(c) for name, c in batch(**columns).items()}
    )


def without(name: str) -> dict[str, Any]:
    return {n: c for n, c in batch().items() if n != name}


class Odd:
    """Nothing that a column can hold."""

    def __repr__(self) -> str:
        return "an odd thing"


# Each is made anew for each session: some can be read only once.
BATCHES: dict[str, Callable[[], Any]] = {
    "lists": batch,
    "a table": table,
    "a record batch": lambda: table().to_batches()[0],
    "a table in chunks": lambda: pa.concat_tables([table(), table()]),
    "tuples": lambda: {name: tuple(c) for name, c in batch().items()},
    "generators": lambda: {name: (v for v in c) for name, c in batch().items()},
    "numpy": lambda: batch(
        ts=np.array([1, 2]) + 900 * SECOND, k=np.array([3, 4], np.int8), f=np.array([1, 2], np.float32)
    ),
    "numpy bool": lambda: batch(b=np.array([True, False])),
    "numpy strings": lambda: batch(name=np.array(["a", "bb"])),
    "numpy objects": lambda: batch(name=np.array(["a", "bb"], object), k=np.array([1, 2], object)),
    "numpy masked": lambda: batch(n=np.ma.masked_array([1, 2], [False, True])),
    "numpy masked key": lambda: batch(k=np.ma.masked_array([1, 2], [False, True])),
    "numpy backwards": lambda: batch(k=np.array([1, 2, 3, 4])[::-2]),
    "numpy big endian": lambda: batch(k=np.array([1, 2], ">i8")),
    "numpy in two dimensions": lambda: batch(k=np.zeros((2, 1), np.int64)),
    "numpy without dimensions": lambda: batch(k=np.array(5)),
    "numpy long double": lambda: batch(f=np.array([1, 2], np.longdouble)),
    "numpy half": lambda: batch(f=np.array([1, 2], np.float16)),
    "numpy complex": lambda: batch(f=np.array([1, 2], np.complex128)),
    "numpy unsigned": lambda: batch(k=np.array([1, 2], np.uint64)),
    "numpy too large": lambda: batch(k=np.array([1, 1 << 63], np.uint64)),
    "numpy float keys": lambda: batch(k=np.array([1.0, 2.0])),
    "numpy float keys with a fraction": lambda: batch(k=np.array([1.0, 2.5])),
    "numpy NaN key": lambda: batch(k=np.array([1.0, np.nan])),
    "numpy NaN int": lambda: batch(n=np.array([1.0, np.nan])),
    "numpy NaN float": lambda: batch(f=np.array([1.0, np.nan])),
    "numpy bool as int": lambda: batch(k=np.array([True, False])),
    "numpy int as string": lambda: batch(name=np.array([1, 2])),
    "numpy strings as int": lambda: batch(k=np.array(["1", "2"])),
    **{
        f"numpy times in {unit}": partial(lambda unit: batch(at=np.array([1, 2], f"M8[{unit}]")), unit)
        for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns")
    },
    "numpy NaT": lambda: batch(at=np.array(["2020-01-01", "NaT"], "M8[us]")),
    "numpy NaT event": lambda: batch(ts=np.array(["2020-01-01", "NaT"], "M8[us]")),
    "numpy beyond any date": lambda: batch(at=np.array([1, 1 << 62], "M8[s]")),
    "numpy spans": lambda: batch(at=np.array([1, 2], "m8[us]")),
    "pandas": lambda: {name: pd.Series(c) for name, c in batch(n=[7, 8]).items()},
    "pandas with nothing": lambda: batch(k=pd.Series([1, None], dtype="Int64")),
    "pandas keys that became floats": lambda: batch(k=pd.Series([1, None])),
    "datetimes": lambda: batch(at=[datetime(2020, 1, 1), datetime(2020, 1, 1, 12)]),
    "datetimes of zones": lambda: batch(
        at=[datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=5)))]
    ),
    "dates": lambda: batch(at=[date(2020, 1, 1), None]),
    "texts of dates": lambda: batch(at=["2020-01-01", "2020-01-02"]),
    "floats as times": lambda: batch(at=[1.0, 2.0]),
    "integers and floats as times": lambda: batch(at=[1, 2.0]),
    "integers and half floats as times": lambda: batch(at=[1, 2.5]),
    "integers and datetimes": lambda: batch(at=[1, datetime(2020, 1, 1)]),
    "integers and floats": lambda: batch(k=[1, 2.0], f=[1, 2.5]),
    "numpy scalars": lambda: batch(k=[np.int32(1), np.int64(2)], f=[np.float32(1), 2.0], name=[np.str_("a"), "b"]),
    "fractions as keys": lambda: batch(k=[1.5, 2.0]),
    "fractions as integers": lambda: batch(n=[1.5, None]),
    "mixed keys": lambda: batch(k=[1, "two"]),
    "mixed text keys": lambda: batch(name=["one", 2]),
    "text for integers": lambda: batch(n=["x", "y"]),
    "text keys for integer keys": lambda: batch(k=["x", "y"]),
    "integers for text keys": lambda: batch(name=[1, 2]),
    "NaN among keys": lambda: batch(k=[1, float("nan")]),
    "NaN among text keys": lambda: batch(name=["a", float("nan")]),
    "NaN for all text keys": lambda: batch(name=[float("nan"), float("nan")]),
    "NaN among integers": lambda: batch(n=[1, float("nan")]),
    "true among integers": lambda: batch(n=[1, True]),
    "true as integers": lambda: batch(n=[True, False]),
    "integers as true": lambda: batch(b=[1, 0]),
    "a large integer": lambda: batch(n=[1, 1 << 63]),
    "a huge integer": lambda: batch(n=[1, 1 << 80]),
    "decimals": lambda: batch(f=[Decimal("1.5"), Decimal(2)]),
    "bytes for text": lambda: batch(name=[b"a", b"b"]),
    "half a character": lambda: batch(name=["a", "\ud800"]),
    "odd things": lambda: batch(n=[1, Odd()]),
    "lists in lists": lambda: batch(n=[[1], [2]]),
    "a null key": lambda: batch(k=[1, None]),
    "a null text key": lambda: batch(name=["a", None]),
    "a null time": lambda: batch(ts=[1, None]),
    "all null": lambda: batch(n=[None, None], at=[None, None]),
    "null keys alone": lambda: batch(k=[None, None]),
    "a time beyond any date": lambda: batch(ts=[1, 1 << 62]),
    "a long text": lambda: batch(name=["a", "b" * 40_000]),
    "unequal lengths": lambda: batch(k=[1]),
    "no tuples": lambda: {name: [] for name in batch()},
    "no tuples in a table": lambda: table().slice(0, 0),
    "no tuples and no chunks": lambda: pa.table(
        {n: pa.chunked_array([], c.type) for n, c in zip(*_split(), strict=True)}
    ),
    "a column is missing": lambda: without("f"),
    "a column is missing in a table": lambda: pa.table(without("f")),
    "a column is unknown": lambda: batch(g=[1, 2]),
    "a column's name is no text": lambda: {**batch(), 5: [1, 2]},
    "a column is twice": lambda: pa.Table.from_arrays([*table().columns, pa.array([1, 2])], [*batch(), "k"]),
    "no columns": lambda: {},
    "a text as column": lambda: batch(name="ab"),
    "a number as column": lambda: batch(k=5),
    "nothing as column": lambda: batch(k=None),
    "a set as column": lambda: batch(k={1, 2}),
    "a mapping as column": lambda: batch(k={1: 2, 2: 3}),
    "no batch": lambda: 5,
    "nothing": lambda: None,
    "a list of rows": lambda: [{"ts": 1}],
    "Arrow floats as keys": lambda: table(k=pa.array([1.0, 2.0])),
    "Arrow fractions as keys": lambda: table(k=pa.array([1.0, 2.5])),
    "Arrow NaN key": lambda: table(k=pa.array([1.0, float("nan")])),
    "Arrow text for integers": lambda: table(k=pa.array(["1", "2"])),
    "Arrow integers for text": lambda: table(name=pa.array([1, 2])),
    "Arrow dictionary": lambda: table(name=pa.array(["a", "b"]).dictionary_encode()),
    "Arrow dictionaries that differ": lambda: table(
        name=pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    ),
    "Arrow dictionary of numbers": lambda: table(k=pa.array([5, 6]).dictionary_encode()),
    "Arrow large strings": lambda: table(name=pa.array(["a", "b"], pa.large_string())),
    "Arrow string views": lambda: table(name=pa.array(["a", "b"], pa.string_view())),
    "Arrow nulls": lambda: table(n=pa.nulls(2), at=pa.nulls(2)),
    "Arrow null keys": lambda: table(k=pa.nulls(2)),
    "Arrow small integers": lambda: table(k=pa.array([1, 2], pa.uint8()), f=pa.array([1, 2], pa.int16())),
    "Arrow large integers": lambda: table(k=pa.array([1, (1 << 64) - 1], pa.uint64())),
    "Arrow nanoseconds": lambda: table(at=pa.array([1_500, 2_000], pa.timestamp("ns"))),
    "Arrow seconds of a zone": lambda: table(at=pa.array([1, 2], pa.timestamp("s", "Europe/Berlin"))),
    "Arrow beyond any date": lambda: table(at=pa.array([1, 1 << 62], pa.timestamp("s"))),
    "Arrow dates": lambda: table(at=pa.array([1, 2], pa.date32())),
    "Arrow decimals": lambda: table(f=pa.array([Decimal("1.5"), Decimal("2.5")])),
    "Arrow lists": lambda: table(n=pa.array([[1], [2]])),
    "Arrow structures": lambda: table(n=pa.array([{"x": 1}, {"x": 2}])),
    "Arrow binary": lambda: table(name=pa.array([b"a", b"b"])),
    "Arrow that is malformed": lambda: table(
        name=pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 9, 2], np.int32)), pa.py_buffer(b"ab"))
    ),
    "Arrow text that is no UTF-8": lambda: table(
        name=pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff"))
    ),
    "Arrow columns in a mapping": lambda: batch(k=pa.array([1, 2]), name=pa.chunked_array([["a"], ["b"]])),
}


def _split() -> tuple[list[str], list[Any]]:
    made = table()
    return made.column_names, made.columns


def outcome(session: Session, stream: str, given: Any) -> Any:
    """What came of a batch: the result, or the error in full."""
    try:
        return session.ingest(stream, given)
    except e.PromisingError as problem:
        return type(problem).__name__, str(problem)


def kept(session: Session, stream: str) -> Any:
    return session.query(f"SELECT * FROM {stream}").to_arrow().to_pylist()


@pytest.fixture
def pair(both: Both) -> Iterator[tuple[Session, Session]]:
    here, there = both(clock=ManualClock(NOW), seed=3)
    yield prepared(here), prepared(there)


def test_every_batch_is_taken_or_refused_alike(pair: tuple[Session, Session]):
    """By a stream with keys and by one without: the same tuples are in, or the same error names the same row."""
    taken = refused = 0
    for name, made in BATCHES.items():
        for stream in ("s", "free"):
            here, there = (outcome(session, stream, made()) for session in pair)
            assert there == here, f"{name}, into {stream}"
            taken += isinstance(here, Appended)
            refused += not isinstance(here, Appended)
    for stream in ("s", "free"):
        inside, outside = (repr(kept(session, stream)) for session in pair)  # NaN is not equal to itself
        assert outside == inside
    assert taken > 70 and refused > 90, (taken, refused)


def test_a_refusal_says_which_row(session: Session):
    for columns, kind, message in (
        ({"k": [1, "two"]}, e.MixedKeys, "column 'k', row 1: 'two' among int keys"),
        ({"k": [1, float("nan")]}, e.NaNKey, "column 'k', row 1: NaN is no key"),
        ({"n": [1, 1.5]}, e.WrongType, "column 'n', row 1: 1.5 is no int"),
        ({"k": [1, None]}, e.NullKey, "column 'k', row 1"),
        ({"k": [1]}, e.UnequalLengths, "ts 2, k 1"),
        ({"name": ["a", "b" * 40_000]}, e.ValueTooLong, "column 'name', row 1: 40,000 bytes"),
    ):
        with pytest.raises(kind) as found:
            session.ingest("s", batch(**columns))
        assert message in str(found.value)
    assert kept(session, "s") == []


# --- old and early tuples ----------------------------------------------------------------------------------------


def test_tuples_out_of_time_are_left_out_and_counted(session: Session):
    assert session.ingest("s", batch()).accepted == 2
    mixed = batch(ts=[5, 902 * SECOND], k=[3, 4])
    assert session.ingest("s", mixed) == Appended(1, {"too_old": 1})
    early = batch(ts=[NOW + 3600 * SECOND, 903 * SECOND])
    assert session.ingest("s", early) == Appended(1, {"too_far_ahead": 1})
    row = session.execute("SHOW STREAMS").to_pylist()[1]  # type: ignore[union-attr]  # SHOW gives a table
    assert (row["name"], row["tuples"], row["refused"]) == ("s", 4, 2)


def test_strict_refuses_the_whole(session: Session):
    session.ingest("s", batch())
    before = kept(session, "s")
    with pytest.raises(e.TooOld, match=r"row 1: 1970-01-01 00:00:00\.000005 is before 1970-01-01"):
        session.ingest("s", batch(ts=[902 * SECOND, 5]), strict=True)
    with pytest.raises(e.TooFarAhead, match=r"row 0: .* is 1 hour ahead of the clock; 5 minutes is the most"):
        session.ingest("s", table(ts=pa.array([NOW + 3600 * SECOND, 1], pa.timestamp("us"))), strict=True)
    assert kept(session, "s") == before


def test_advance_moves_the_watermark(session: Session):
    session.ingest("s", batch())
    session.advance("s", 905 * SECOND)
    session.advance("s", 100)
    assert session.describe("by_k").watermark == 905 * SECOND
    for wrong in (1.5, "1", None, 1 << 62, -(1 << 70)):
        with pytest.raises(e.WrongType, match="watermark"):
            session.advance("s", wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(e.BadWatermark, match="1 second ahead of the clock"):
        session.advance("s", NOW + SECOND)
    with pytest.raises(e.BadWatermark, match="it looks like nanoseconds"):
        session.advance("s", 1_700_000_000_000_000_000)
    assert session.describe("by_k").watermark == 905 * SECOND


def test_a_stream_that_is_full(opened: Opened):
    session = opened(seed=1)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts OPTIONS (max_tuples = 10)")
    room = None
    for number in range(10_000):  # it may keep more: whole chunks
        try:
            session.ingest("s", {"ts": np.full(1_000, number), "k": np.arange(1_000)})
        except e.CeilingReached as problem:
            room = problem
            break
    assert room is not None
    assert session.query("SELECT count(*) AS n FROM s").to_arrow()["n"].to_pylist() == [1_000 * number]


# --- numbered batches --------------------------------------------------------------------------------------------


def test_a_numbered_batch_is_added_once(session: Session):
    first = session.ingest("s", batch(), producer="till 7", sequence=1)
    assert first == Appended(2)
    assert session.ingest("s", batch(), producer="till 7", sequence=1) == Appended(2, duplicate=True)
    assert session.ingest("s", batch(k=[8, 9]), producer="till 7", sequence=1).duplicate, "whatever it holds"
    assert not session.ingest("s", batch(), producer="till 8", sequence=1).duplicate
    assert not session.ingest("s", batch(), producer="till 7", sequence=3).duplicate
    assert not session.ingest("s", batch(), producer="till 7", sequence=2).duplicate
    assert not session.ingest("free", batch(), producer="till 7", sequence=1).duplicate
    assert len(kept(session, "s")) == 8


def test_a_refused_number_may_come_again(session: Session):
    with pytest.raises(e.NullKey):
        session.ingest("s", batch(k=[1, None]), producer="till 7", sequence=1)
    assert session.ingest("s", batch(), producer="till 7", sequence=1) == Appended(2)


def test_the_same_batch_without_a_number_is_added_again(session: Session):
    for _ in range(3):
        assert session.ingest("s", batch()) == Appended(2)
    assert len(kept(session, "s")) == 6


@pytest.mark.deep("a service for each of many cases")
@pytest.mark.parametrize(
    ("producer", "sequence"),
    [
        ("x", None),
        (None, 1),
        ("", 1),
        ("x" * 257, 1),
        ("x", 0),
        ("x", -1),
        ("x", True),
        ("x", 1.0),
        ("x", 1 << 63),
        (5, 1),
    ],
)
def test_a_number_that_cannot_be(producer: Any, sequence: Any, session: Session):
    with pytest.raises(e.BadSequence):
        session.ingest("s", batch(), producer=producer, sequence=sequence)
    assert kept(session, "s") == []


def test_a_number_that_nobody_remembers(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("promising.index.ledger.BATCHES", 16)
    one = {name: c[:1] for name, c in batch().items()}
    for number in (1, *range(10, 26)):
        session.ingest("free", one, producer="till 7", sequence=number)
    with pytest.raises(e.SequenceTooOld, match="batch 1 of producer 'till 7'"):
        session.ingest("free", one, producer="till 7", sequence=1)
    assert session.ingest("free", one, producer="till 7", sequence=10).duplicate


def test_a_second_writer_is_fenced_by_an_epoch(session: Session):
    one = {name: c[:1] for name, c in batch().items()}
    assert not session.ingest("free", one, producer="till 7", sequence=1).duplicate
    assert session.ingest("free", one, producer="till 7", sequence=1, epoch=2).duplicate
    for sequence in (1, 2):
        with pytest.raises(
            e.ProducerFenced, match=r"batch \d of producer 'till 7' has epoch 1.*end the other with epoch 3"
        ):
            session.ingest("free", one, producer="till 7", sequence=sequence, epoch=1)
    assert not session.ingest("free", one, producer="till 7", sequence=2, epoch=2).duplicate
    wrong: tuple[tuple[Any, Any, Any], ...] = (("x", 1, -1), ("x", 1, True), (None, None, 1))
    for producer, sequence, epoch in wrong:
        with pytest.raises(e.BadSequence):
            session.ingest("free", one, producer=producer, sequence=sequence, epoch=epoch)


# --- large tables ------------------------------------------------------------------------------------------------


def wide(n: int) -> Mapping[str, Any]:
    return {
        "ts": np.full(n, 900 * SECOND),
        "k": np.arange(n) % 50,
        "name": pa.array(np.arange(n) % 100).cast(pa.string()),
        "f": np.arange(n) / 2,
        "b": np.arange(n) % 2 == 0,
        "at": np.arange(n),
        "n": np.arange(n),
    }


def test_a_table_larger_than_a_message(session: Session):
    n = 700_000
    assert session.ingest("free", wide(n)) == Appended(n)
    (row,) = session.query("SELECT count(*) AS n, sum(n) AS s, max(f) AS f FROM free").to_arrow().to_pylist()
    assert row == {"n": n, "s": n * (n - 1) // 2, "f": (n - 1) / 2}
    order = session.query("SELECT n FROM free").to_arrow()["n"].to_numpy()
    assert (order == np.arange(n)).all(), "in the order given"


def test_a_large_table_that_is_malformed_changes_nothing(session: Session):
    n = 700_000
    with pytest.raises(e.WrongType, match=f"column 'n', row {n - 1}: 0.5 is no 64-bit integer"):
        session.ingest("free", {**wide(n), "n": np.append(np.zeros(n - 1), 0.5)})
    keys = pa.array([*range(n - 1), None])
    with pytest.raises(e.NullKey, match=f"column 'k', row {n - 1}"):
        session.ingest("s", pa.table({**wide(n), "k": keys}))
    assert kept(session, "free") == kept(session, "s") == []
