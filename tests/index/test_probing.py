"""`probing` is `fetch` in slices: the same tuples, each key looked up once, while the stream goes on."""

import numpy as np
import pyarrow as pa
import pytest

from promising.errors import BadWindow, UnknownName, WrongType
from promising.index import Stream
from promising.index import probing as probes
from promising.index.log import CHUNK
from promising.index.postings import Postings
from promising.index.probing import probing
from promising.index.stream import MINUTE
from promising.testing import ManualClock
from tests.index.test_fetch import QUESTIONS, STORE, STRUCTURES


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A key has several slices."""
    monkeypatch.setattr(probes, "SLICE", 64)


def gathered(summary, keys, window=None, columns=None):
    """The slices, put together as clients do."""
    parts = [part for part in probing(summary, keys, window, columns) if part is not None]
    assert all(part.num_rows <= probes.SLICE for part in parts)
    rows = pa.concat_tables(parts).combine_chunks()
    order = np.argsort(rows["probe"].to_numpy(), kind="stable")
    return rows["probe"].to_numpy()[order], rows.drop_columns("probe").take(order)


def in_order(probe, table):
    """Without a structure, slices are in the order of arrival and so is `fetch`; with one, the newest come first."""
    return probe.tolist(), table.to_pylist()


@pytest.mark.parametrize("window", [None, (12 * MINUTE, 18 * MINUTE), (5, 5)])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_slices_are_fetch(structure, question, window):
    summary = STORE.summaries[structure]
    assert in_order(*gathered(summary, QUESTIONS[question], window)) == in_order(
        *summary.fetch(QUESTIONS[question], window)
    )


def test_string_keys():
    summary = STORE.summaries["by_name"]
    keys = ["item 5", "item 9", "item 5", "nobody"]
    assert in_order(*gathered(summary, keys, None, ["name", "open"])) == in_order(
        *summary.fetch(keys, columns=["name", "open"])
    )


def test_different_keys_are_in_the_order_of_the_request():
    parts = [part for part in probing(STORE.summaries["adaptive"], np.arange(40)[::-1].copy()) if part is not None]
    places = pa.concat_tables(parts)["probe"].to_numpy()
    assert (np.diff(places) >= 0).all()


@pytest.mark.parametrize("keys", [[7] * 1000, [7, 3] * 500])
def test_a_key_is_looked_up_once_however_often_it_is_asked_for(monkeypatch, keys):
    looked: list[int] = []
    follow, walk = Postings.follow, Postings.walk

    def followed(self, row, rows):
        looked.append(len(rows))
        return follow(self, row, rows)

    def walked(self, newest, counts, total):
        looked.append(total)
        return walk(self, newest, counts, total)

    monkeypatch.setattr(Postings, "follow", followed)
    monkeypatch.setattr(Postings, "walk", walked)
    summary = STORE.summaries["grid"]
    different = len(summary.probe(sorted(set(keys))))
    looked.clear()
    turns = found = 0
    for part in probing(summary, keys, columns=["item"]):
        turns += 1
        if part is not None:
            found += part.num_rows
            assert part["item"].to_pylist() == [keys[at] for at in part["probe"].to_pylist()]
    assert found == different * len(keys) // len(set(keys))
    assert sum(looked) == different
    assert turns >= found / probes.SLICE


def test_a_wrong_question_is_refused_before_anything_is_read():
    summary = STORE.summaries["time"]
    with pytest.raises(UnknownName):
        probing(summary, [1], None, ["colour"])
    with pytest.raises(BadWindow):
        probing(summary, [1], (5, 4))
    with pytest.raises(WrongType):
        probing(summary, ["x"])


def add(stream, first, count, key):
    stream.append({"ts": np.arange(first, first + count) * MINUTE // 100, "k": np.full(count, key)})


@pytest.mark.parametrize("chunks", range(1, 3))
@pytest.mark.parametrize("turns", [8, 20])
def test_rows_that_are_used_again_meanwhile_are_not_taken_for_those_that_were_listed(turns, chunks):
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", keep=10 * MINUTE, clock=ManualClock(1 << 50))
    stream.create_summary("m", key="k", granularity=MINUTE, collapse=(2, 3))
    add(stream, 0, CHUNK - 1000, 1)
    add(stream, CHUNK - 1000, 1000, 0)
    steps = probing(stream.summaries["m"], [0])
    found = [part for _, part in zip(range(turns), steps, strict=False)]
    for number in range(chunks):
        add(stream, (number + 1) * CHUNK, CHUNK, 1)
    found += list(steps)
    rows = pa.concat_tables([part for part in found if part is not None])
    assert set(rows["k"].to_pylist()) <= {0}
    times = rows["ts"].to_numpy().astype(np.int64)
    assert len(np.unique(times)) == len(times)


def test_a_key_whose_oldest_tuples_go_while_it_is_listed_is_listed_anew():
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", keep=450 * MINUTE, clock=ManualClock(1 << 50))
    stream.create_summary("m", key="k", granularity=MINUTE, collapse=(2, 3))
    for number in range(3):
        add(stream, number * CHUNK, CHUNK, 0)
    steps = probing(stream.summaries["m"], [0], columns=["ts"])
    assert next(steps) is None
    add(stream, 3 * CHUNK, CHUNK, 0)
    rows = pa.concat_tables([part for part in steps if part is not None])
    assert rows.num_rows == stream.kept
    assert rows["ts"].to_numpy().astype(np.int64).tolist() == sorted(
        rows["ts"].to_numpy().astype(np.int64).tolist(), reverse=True
    )
