"""Batches on their way out, without a connection: how tables are cut, and what is under way."""

import numpy as np
import pyarrow as pa
import pytest

from promising import wire
from promising.client.batches import PIECE, ROWS, Numbering, pieces
from promising.client.ingest_feed import BATCHES, BYTES, Feed
from promising.errors import BatchTooLarge, InternalError, NullKey
from promising.index import Appended
from promising.v1 import common_pb2, streams_pb2


def read(table: pa.Table, most: int) -> list[pa.Table]:
    made = list(pieces(table, most))
    assert all(len(data) <= most for data in made)
    found = [wire.table(data) for data in made]
    assert pa.concat_tables(found) == table
    return found


def test_a_table_that_fits_is_one_piece():
    assert len(read(pa.table({"n": np.arange(1000)}), 1 << 16)) == 1
    assert len(read(pa.table({"n": pa.array([], pa.int64())}), 1 << 16)) == 1


@pytest.mark.parametrize("most", [1 << 14, 1 << 16, 1 << 20])
def test_pieces_fit_and_make_the_whole(most: int):
    rng = np.random.default_rng(1)
    texts = ["x" * int(n) for n in rng.pareto(1.0, 20_000).clip(0, 5_000)]  # a few rows have most of the bytes
    table = pa.table({"n": np.arange(20_000), "text": texts})
    assert len(read(table, most)) >= table.nbytes / most


def test_a_batch_has_no_more_tuples_than_a_service_takes():
    found = read(pa.table({"b": np.zeros(ROWS + 1, np.bool_)}), 1 << 24)
    assert max(part.num_rows for part in found) <= PIECE


def test_a_row_is_never_cut():
    (data,) = pieces(pa.table({"text": ["x" * 100_000]}), 1 << 16)
    assert wire.table(data).num_rows == 1


def test_numbers_rise_over_tables():
    numbering = Numbering(1 << 16, "me")
    table = pa.table({"n": np.arange(20_000)})
    made = [*numbering.requests("s", table, False, None, None), *numbering.requests("t", table, True, None, None)]
    assert [(r.producer_id, r.sequence) for r in made] == [("me", n + 1) for n in range(len(made))]
    assert len(made) > 4 and not made[0].strict and made[-1].strict
    with pytest.raises(BatchTooLarge):
        list(numbering.requests("s", table, False, "till 7", 1))
    (one,) = numbering.requests("s", table.slice(0, 10), False, "till 7", 9)
    assert (one.producer_id, one.sequence) == ("till 7", 9)


# --- what is under way -------------------------------------------------------------------------------------------


def request(number: int, size: int = 1) -> streams_pb2.IngestRequest:
    return streams_pb2.IngestRequest(stream="s", producer_id="me", sequence=number, arrow=b"x" * size)


def added(number: int, tuples: int = 1, **refused: int) -> streams_pb2.IngestResponse:
    told = streams_pb2.Appended(accepted=tuples, refused=refused)
    return streams_pb2.IngestResponse(sequence=number, appended=told)


def sent(feed: Feed) -> list[int]:
    out = []
    while (unsent := feed.unsent()) is not None:
        out.append(unsent.sequence)
    return out


def test_the_first_batch_of_a_call_goes_alone():
    feed = Feed()
    for number in range(1, 5):
        feed.add(request(number))
    assert sent(feed) == [1]
    assert feed.take(added(1)) == Appended(1)
    assert sent(feed) == [2, 3, 4]
    feed.lost()
    again = feed.unsent()
    assert again is not None and (again.sequence, again.resent) == (2, True)
    feed.take(added(2))
    feed.add(request(5))
    assert [request.resent for request in iter(feed.unsent, None) if request is not None] == [True, True, False]


def test_so_many_are_under_way_and_no_more():
    feed = Feed()
    for number in range(1, BATCHES + 1):
        assert feed.room
        feed.add(request(number))
    full = not feed.room
    feed.unsent()
    feed.take(added(1))
    assert full and feed.room
    large = Feed()
    large.add(request(1, BYTES))
    assert not large.room


def test_sums_and_the_first_refusal():
    feed = Feed()
    for number in (1, 2, 3):
        feed.add(request(number))
    feed.unsent()
    assert feed.take(added(1, 5, too_old=2)) == Appended(5, {"too_old": 2})
    sent(feed)
    refusal = common_pb2.Refusal(reason="NULL_KEY", message="column 'k', row 3: null")
    assert feed.take(streams_pb2.IngestResponse(sequence=2, refusal=refusal)) is None
    assert not feed.room and feed.waiting
    feed.take(added(3, 4, too_old=1))
    assert feed.total == Appended(9, {"too_old": 3})
    with pytest.raises(NullKey, match="column 'k', row 3: null"):
        feed.result()


def test_an_answer_out_of_turn_is_a_fault():
    feed = Feed()
    with pytest.raises(InternalError):
        feed.take(added(1))
    feed.add(request(1))
    feed.unsent()
    with pytest.raises(InternalError):
        feed.take(added(2))
