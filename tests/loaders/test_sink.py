"""What a task sends: the same batches whatever the order of its rows, and a word when its rows are others."""

import random
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql")

from promising.errors import BatchError, BatchTooLarge, NullKey, NullTime
from promising.index.ledger import BATCHES as REMEMBERED
from promising.index.ledger import RESULTS, check_number
from promising.loaders import sink
from promising.loaders.sink import OtherRows, Place, Sent, Target, cut, digest, gathered, send, tell
from promising.query.session import Session

COLUMNS = {
    "ts": ("timestamp", "ts"),
    "item": ("int", "Item"),
    "price": ("float", "price"),
    "name": ("string", "name"),
    "paid": ("bool", "paid"),
}
NAN, OTHER_NAN = float("nan"), -float("nan")


def rows(count: int) -> list[dict[str, Any]]:
    draw = random.Random(count)
    prices = [0.0, -0.0, NAN, OTHER_NAN, 1.5, None]
    return [
        {
            "ts": draw.randrange(count // 4 + 1) * 1_000_000,
            "Item": draw.randrange(5),
            "price": draw.choice(prices),
            "name": draw.choice(["milk", "", None, "Grüße"]),
            "paid": draw.choice([True, False, None]),
        }
        for _ in range(count)
    ]


def arrow(given: list[dict[str, Any]], zone: str | None = "Asia/Kolkata") -> pa.RecordBatch:
    schema = pa.schema(
        {
            "ts": pa.timestamp("us", zone),
            "Item": pa.int32(),
            "price": pa.float64(),
            "name": pa.string(),
            "paid": pa.bool_(),
        }
    )
    return pa.RecordBatch.from_pylist(given, schema)


@pytest.fixture
def session():
    with Session(clock=lambda: 10**15, seed=1) as made:
        made.execute(
            "CREATE STREAM s (ts TIMESTAMP, item INT, price DOUBLE, name VARCHAR, paid BOOLEAN) TIMESTAMP BY ts"
        )
        yield made


@pytest.fixture
def target(session: Session):
    return Target(lambda: nullcontext(session), "s", COLUMNS, "ts", ("ts", "item"), False)


def ipc(tables: Any) -> list[bytes]:
    found = []
    for table in tables:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        found.append(out.getvalue().to_pybytes())
    return found


def test_the_same_rows_in_another_order_are_the_same_batches(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink, "SMALL", 4_000)
    given = rows(1_000)
    shuffled = random.Random(2).sample(given, len(given))
    one = ipc(cut(gathered(target, [arrow(given[:300]), arrow(given[300:])])))
    other = ipc(cut(gathered(target, [arrow(shuffled[:7]), arrow([]), arrow(shuffled[7:], None)])))
    assert one == other
    assert len(one) > 3


def test_batches_hold_all_rows_once(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink, "SMALL", 1_000)
    for count in (1, 2, 3, 50, 700):
        table = gathered(target, [arrow(rows(count))])
        parts = list(cut(table))
        assert ipc([pa.concat_tables(parts).combine_chunks()]) == ipc([table])
        assert all(part.num_rows for part in parts)
        assert len(parts) <= sink.BATCHES


def test_the_digest_sees_every_value(target: Target):
    given = rows(200)
    seen = {digest(gathered(target, [arrow(given)]))}
    for column, value in {"ts": 7, "Item": 99, "price": 3.25, "name": "butter"}.items():
        seen.add(digest(gathered(target, [arrow([{**given[0], column: value}, *given[1:]])])))
    for column in ("price", "name", "paid"):
        without = next(at for at, row in enumerate(given) if row[column] is not None)
        changed = [{**row, column: None} if at == without else row for at, row in enumerate(given)]
        seen.add(digest(gathered(target, [arrow(changed)])))
    assert len(seen) == 8


def test_an_attempt_that_comes_again_adds_nothing(session: Session, target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink, "SMALL", 4_000)
    given = rows(1_000)
    place = Place("job", 0, 3)
    whole = list(cut(gathered(target, [arrow(given)])))
    for number, part in enumerate(whole[:2]):  # an attempt that got no further
        session.ingest("s", part, producer=place.producer, sequence=place.sequence(number))
    sent = send(target, place, [arrow(given)])
    assert (sent.rows, sent.accepted, sent.known) == (1_000, 1_000, sum(part.num_rows for part in whole[:2]))
    again = send(target, place, [arrow(list(reversed(given)))])
    assert (again.rows, again.known) == (1_000, 1_000)
    assert session.stream("s").count == 1_000


def test_other_rows_are_noticed_before_one_of_them_is_in(session: Session, target: Target):
    given = rows(500)
    send(target, Place("job", 0, 0), [arrow(given)])
    caught = 0
    for change in range(20):
        changed = [dict(row) for row in given]
        changed[change]["Item"] += 100
        try:
            send(target, Place("job", 0, 0), [arrow(changed)])
        except OtherRows as problem:
            caught += 1
            assert "repartition(8, 'a column')" in str(problem)
    assert caught >= 18  # 1 of 500 may have a first batch of the same size
    assert session.stream("s").count == 500


def test_numbers_of_partitions_and_batches_never_meet():
    seen = set()
    for batch in range(3):
        for partition in range(40):
            for number in (0, 1, sink.BATCHES - 1):
                place = Place("q" * 300, batch, partition)
                check_number(place.producer, place.sequence(number))
                seen.add((place.producer, place.sequence(number)))
    assert len(seen) == 3 * 40 * 3
    assert Place("q", 1, 0).sequence(0) > max(Place("q", 0, p).sequence(sink.BATCHES - 1) for p in range(40))


def test_a_service_remembers_all_that_may_come_again():
    assert sink.GROUP * sink.BATCHES <= REMEMBERED
    assert sink.PRODUCERS * sink.GROUP * sink.BATCHES <= RESULTS // 2
    with pytest.raises(BatchError, match=r"coalesce\(1024\)"):
        Place("job", 0, sink.GROUP * sink.PRODUCERS)


def test_a_partition_that_is_too_large_is_refused(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink, "SMALL", 100)
    monkeypatch.setattr(sink, "LARGE", 200)
    with pytest.raises(BatchTooLarge, match=r"700 rows .* more partitions"):
        list(cut(gathered(target, [arrow(rows(700))])))


def test_nulls_are_named_before_anything_is_sent(session: Session, target: Target):
    given = rows(10)
    for column, error in (("ts", NullTime), ("Item", NullKey)):
        bad = [*given, {**given[0], column: None}]
        with pytest.raises(error, match=f"column '{column.lower()}' has 1 nulls"):
            send(target, Place("job", 0, 0), [arrow(bad)])
    assert session.stream("s").count == 0


def test_refused_rows_are_counted_and_told(session: Session, target: Target, caplog: pytest.LogCaptureFixture):
    given = rows(10)
    given[0]["ts"] = 2 * 10**15
    sent = [send(target, Place("job", 0, 0), [arrow(given)]), send(target, Place("job", 0, 1), [])]
    assert sent[0].refused == {"too_far_ahead": 1}
    total = tell(target, sent, "job 1")
    assert (total.rows, total.accepted) == (10, 9)
    assert "job 1: of 10 rows the stream s refused 1 too far ahead" in caplog.text


def test_counts_that_do_not_agree_fail_the_commit(target: Target):
    with pytest.raises(OtherRows, match="10 rows were sent"):
        tell(target, [Sent(0, rows=10, accepted=9)], "job 1")
