"""Streams without a limit grow: every answer stays, whoever is reading, and small streams take little."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising
from promising.errors import BadOptions, CeilingReached
from promising.index import Stream, options
from promising.index.check import check_stream
from promising.index.log import MOST_ROWS
from promising.index.memory import Memory
from promising.index.postings import Postings
from promising.index.snapshot import Snapshot
from promising.index.summary import SummaryState
from promising.query import Session
from promising.summaries.reserved import Reserved
from promising.testing import ManualClock, streams
from tests.index.world import SCHEMA, SMALL, Columns, columns, oracle_for, pairs, restarted, small_chunks
from tests.tiers import examples

CHUNK = 64
KEYS = np.arange(12)
CLOCK = ManualClock(1 << 50)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, CHUNK)


def batch(first: int, n: int, late: int = 0) -> Columns:
    """Tuples numbered from `first` on, a microsecond each; `late`: so much earlier."""
    numbers = np.arange(first, first + n)
    return columns(np.maximum(numbers - late, 0), numbers * 7 % 12, first)


# --- arrays ----------------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    held=st.booleans(),
    width=st.sampled_from([(), (3,)]),
)
def test_an_array_keeps_its_content_and_views_keep_theirs(lengths, held, width):
    array = Reserved(np.int32, 4, width)
    wanted = np.zeros((4, *width), np.int32)
    views: list[tuple[np.ndarray, np.ndarray]] = []
    for number, length in enumerate(lengths, 1):
        before = len(wanted)
        array.grow(length, [(0, before)])
        wanted = np.concatenate([wanted, np.zeros((max(length - before, 0), *width), np.int32)])
        assert (array.array == wanted).all()
        wanted[number % len(wanted)] = array.array[number % len(wanted)] = number
        if held:
            views = [v for v in views if v[0] is not array.array]
            views.append((array.array, wanted.copy()))
    for view, content in views:
        assert (view == content).all()


def test_only_what_is_in_use_is_copied_where_a_view_is_held():
    array = Reserved(np.int64, 8)
    array.array[:] = range(8)
    held = array.array
    array.grow(16, [(2, 4)])
    assert array.array.tolist() == [0, 0, 2, 3, *[0] * 12]
    assert held.tolist() == list(range(8))
    array.array[2] = 9
    assert held[2] == 2


# --- against the oracle ----------------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(
    sizes=st.lists(st.tuples(st.integers(1, 400), st.sampled_from([0, 0, 50, 900])), min_size=2, max_size=10),
    added=st.integers(0, 9),
    restarts=st.sets(st.integers(0, 9), max_size=2),
    structure=st.sampled_from(["time", "grid", "adaptive"]),
)
def test_a_stream_that_doubles_agrees_with_the_oracle(sizes, added, restarts, structure):
    """Late tuples, restarts, and a summary that is created later."""
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, CHUNK)
        stream = Stream("s", SCHEMA, "ts", clock=CLOCK, seed=3)
        create = partial(stream.create_summary, granularity=40, collapse=(2, 3), structure=structure, options=SMALL)
        create("first", "k")
        oracle = oracle_for(stream.summaries["first"], stream, CLOCK)
        first = 0
        for number, (n, late) in enumerate(sizes):
            stream.append(batch(first, n, late))
            oracle.append(batch(first, n, late))
            first += n
            if number == added:
                create("later", "k")
            if number in restarts:
                stream = restarted(stream, CLOCK)
                create = partial(stream.create_summary, **create.keywords)
        for summary in stream.summaries.values():
            assert pairs(stream, summary, KEYS, None) == oracle.join(KEYS)
        assert stream._log.capacity <= max(2 * first + CHUNK, CHUNK)
        assert check_stream(stream) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cold", [False, True])
def test_answers_that_are_open_while_the_stream_grows(tmp_path, cold):
    rows = 3000
    with promising.open(tmp_path if cold else None) as session:
        session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, x DOUBLE) TIMESTAMP BY ts")
        session.execute("CREATE SUMMARY s_k ON s (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (4, 5)")

        def add(first: int) -> None:
            numbers = np.arange(first, first + rows)
            session.ingest("s", {"ts": numbers * 1000, "k": numbers % 50, "x": numbers / 2})

        add(0)
        stream = session.stream("s")
        whole = Snapshot(stream, 0, 1 << 60)
        join = "SELECT a.x, b.x AS y FROM s a, s b WHERE a.k = b.k AND a.x < 20"
        answer = session.query(join)
        frames = iter(answer)
        taken = [next(frames)]
        for number in range(1, 5):
            add(number * rows)
            with whole.holding():
                seen = whole.rows_in(0, whole.size)
                assert whole.column("x", seen).to_pylist() == [i / 2 for i in range(rows)]
        taken += list(frames)
        assert stream._log.capacity >= 5 * rows > 16 * CHUNK
        assert sum(frame.rows.num_rows for frame in taken) == 40 * rows // 50


@pytest.mark.usefixtures("small")
def test_a_directory_built_for_a_query_has_place_for_every_row_of_its_snapshot():
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK)
    for number in range(20):
        stream.append(batch(number * 100, 100))
        with stream.reading() as log:
            assert log.rows().max() < log.capacity
            Postings(log.capacity).enter_all(log.hashes("k", log.rows(), 0), log.rows())


# --- zones -----------------------------------------------------------------------------------------------------------


def test_more_tuples_in_g_1_than_the_sketches_are_sized_for(monkeypatch):
    """Zones go on being cut, by content too, and memory stays within what is stated per tuple and key."""
    monkeypatch.setattr(options, "TUPLES", 1000)
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", clock=CLOCK)
    summary = stream.create_summary("s", "k", granularity=1 << 40, options=replace(SMALL, tolerance=1.0))
    assert isinstance(summary.state, SummaryState)
    sizes = summary.state.identity.sizes
    n = 120_000
    data = streams.zipf(n, 500, 1.1, seed=5, rate=1000.0)
    stream.append({"ts": data["ts"], "k": data["item_id"]})
    told = summary.describe()
    assert len(told.zones) > sizes.zones
    assert told.cuts["error"] > sizes.zones // 2
    assert summary.state.fine.pool.groups > sizes.groups
    assert told.ceiling == told.sketch_bytes
    assert told.bytes <= told.sketch_bytes + n * told.tuple_bytes + told.keys * told.key_bytes
    assert check_stream(stream) == []
    assert summary.estimate([0]).value.shape == (1,)


@pytest.mark.parametrize("structure", ["time", "grid", "adaptive", "auto"])
def test_the_stated_bytes_hold(structure):
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", clock=CLOCK)
    summary = stream.create_summary("s", "k", granularity=1000, structure=structure, options=SMALL)
    for number in range(8):
        numbers = np.arange(number * 5000, (number + 1) * 5000)
        stream.append({"ts": numbers, "k": numbers})  # all distinct
        told = summary.describe()
        assert told.bytes <= told.sketch_bytes + told.tuples * told.tuple_bytes + told.keys * told.key_bytes


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_a_given_limit_refuses_and_says_so():
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK, max_tuples=4 * CHUNK)
    stream.append(batch(0, 3 * CHUNK + 10))
    with pytest.raises(CeilingReached, match=r"55 tuples do not fit: the stream keeps up to 256 and has room for 54"):
        stream.append(batch(3 * CHUNK + 10, 55))
    assert stream.append(batch(3 * CHUNK + 10, 54)).accepted == 54
    assert stream._log.capacity == 4 * CHUNK


def test_the_limit_of_row_numbers():
    Stream("s", SCHEMA, "ts", max_tuples=MOST_ROWS)
    with pytest.raises(BadOptions, match="from 1 to 2,147,467,264"):
        Stream("s", SCHEMA, "ts", max_tuples=MOST_ROWS + 1)
    with Stream("s", SCHEMA, "ts").reading() as log:
        assert log.limit == MOST_ROWS
        assert "a stream can number 2,147,467,264 tuples" in log.told(0)


@pytest.mark.usefixtures("small")
def test_where_the_machine_refuses_memory_a_batch_changes_nothing(monkeypatch):
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK)
    stream.create_summary("s", "k", granularity=100, options=SMALL)
    stream.append(batch(0, 100))

    def refused(self: object, length: int, used: object) -> None:
        raise MemoryError("the machine refuses 5 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(Reserved, "grow", refused)
        with pytest.raises(CeilingReached, match=r"refuses 5 bytes; give the stream a limit \(max_tuples\)"):
            stream.append(batch(100, 1000))
    assert (stream.count, stream.refused) == (100, {"ceiling_reached": 1000})
    assert check_stream(stream) == []
    assert stream.append(batch(100, 1000)).accepted == 1000
    assert check_stream(stream) == []


LIMITED = """
import resource, numpy as np
from promising.errors import CeilingReached
from promising.index import Stream
stream = Stream("s", {"ts": "timestamp", "x": "float"}, "ts")
def add(first, n):
    return stream.append({"ts": np.arange(first, first + n), "x": np.zeros(n)})
add(0, 1000)
with open("/proc/self/statm") as f:
    now = int(f.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (96 << 20),) * 2)
n = 1000
try:
    while True:
        n += add(n, 1 << 18).accepted
except CeilingReached as problem:
    assert "the machine refuses" in str(problem), problem
assert n > 1 << 20 and stream.count == n, n
add(n, 1000)
"""


def test_a_process_with_little_address_space_refuses_batches_and_goes_on():
    ended = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


# --- memory ----------------------------------------------------------------------------------------------------------


def test_small_streams_reserve_little():
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK)
    summary = stream.create_summary("s", "k", granularity=1000)
    assert isinstance(summary.state, SummaryState)
    assert isinstance(summary.state.postings, Postings)
    columns_of = [*stream._log._columns.values(), summary.state.postings._chain]
    assert sum(array.array.nbytes for array in columns_of) < 1 << 20
    pool = summary.state.fine.pool
    assert pool.counts.counters.nbytes + pool.sliced.nbytes + pool.cells.nbytes + pool.counts.derived.nbytes < 4 << 20


@pytest.mark.usefixtures("small")
def test_past_the_memory_of_all_streams_a_batch_is_refused_until_some_is_free():
    memory = Memory(20_000)
    a, b = (Stream(name, SCHEMA, "ts", clock=CLOCK) for name in "ab")
    a.memory = b.memory = memory
    a.append(batch(0, 200))
    assert 0 < memory.used <= memory.limit
    with pytest.raises(CeilingReached, match="setting memory_bytes allows; give the service a data directory"):
        for number in range(10):
            b.append(batch(number * 100, 100))
    assert b.count < 1000
    assert b.refused == {"ceiling_reached": 100}
    kept = b.count
    a.leave()
    assert b.append(batch(2000, 100)).accepted == 100
    assert b.count == kept + 100


def test_a_dropped_stream_frees_its_memory_and_a_session_refuses_past_it():
    session = Session(memory_bytes=3 << 20)
    numbers = np.arange(1 << 16)
    for name in "ab":
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, x DOUBLE) TIMESTAMP BY ts")
    session.ingest("a", {"ts": numbers, "x": numbers / 2})
    with pytest.raises(CeilingReached, match="65,536 tuples need 1,048,576 bytes, and the streams have"):
        session.ingest("b", {"ts": numbers, "x": numbers / 2})
        session.ingest("b", {"ts": numbers + 100, "x": numbers / 2})
        session.ingest("b", {"ts": numbers + 200, "x": numbers / 2})
    session.execute("DROP STREAM a CASCADE")
    assert session.ingest("b", {"ts": numbers + 300, "x": numbers / 2}).accepted == 1 << 16
    session.close()
