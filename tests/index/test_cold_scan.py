"""Where the tuples of a snapshot lie, against the files and the log themselves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import promising.index.log
from promising.index import Options, Stream
from promising.index.arrivals import fetch
from promising.index.cold_scan import ColdScan
from promising.index.instants import EVER
from promising.index.scan_plan import Scan
from promising.index.snapshot import Snapshot
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions

TYPES = {"ts": "timestamp", "k": "int", "id": "int", "s": "string"}
SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)
TUPLES = 3_000


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """Most of it cold, in small files of small row groups; the last tuples and what arrived later are in memory."""
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.cold_layout.SMALL", 16)
    options = StoreOptions(hot_tuples=0, run_tuples=256, sync="relaxed")
    with Store.open(tmp_path / "store", seed=3, clock=lambda: 1 << 60, options=options) as store:
        made = store.create_stream("a", TYPES, "ts", lateness=50)
        made.create_summary("s", "k", granularity=200, collapse=(2, 5), options=SMALL)
        rng = np.random.default_rng(1)
        for first in range(0, TUPLES, 500):
            ids = np.arange(first, first + 500)
            times = ids - rng.integers(0, 40, 500)
            made.append({"ts": times, "k": rng.integers(0, 60, 500), "id": ids, "s": [f"{i}" for i in ids]})
        store.checkpoint()
        with made.reading() as log:
            assert log.runs
            assert log.warm
        yield made


def everything(stream: Stream) -> dict[str, np.ndarray]:
    with stream.reading() as log:
        table = log.take(log.rows(), ["ts", "k", "id"])
        return {"row": log.rows(), **{name: table[name].cast(pa.int64()).to_numpy() for name in ("ts", "k", "id")}}


def named(stream: Stream, scan: Scan) -> list[int]:
    """Ids of all that a scan names."""
    parts = [pq.ParquetFile(piece.path).read_row_groups(piece.groups, ["id"]) for piece in scan.pieces]
    parts += [part for first, last in scan.warm for part in fetch(stream, first, last, ["id"])]
    return [i for part in parts for i in part["id"].to_pylist()]


def groups(scan: Scan) -> dict[tuple[str, int], pq.RowGroupMetaData]:
    files = {piece.path: pq.ParquetFile(piece.path).metadata for piece in scan.pieces}
    return {(piece.path, group): files[piece.path].row_group(group) for piece in scan.pieces for group in piece.groups}


@pytest.mark.parametrize(
    "ranges",
    [{}, {"ts": (900, 1100)}, {"k": (7, 7)}, {"k": (5, 9), "ts": (2000, 9999)}, {"id": (1500, 1600)}, {"k": (99, 99)}],
    ids=str,
)
def test_all_that_is_in_range_is_named_once_and_no_group_that_is_out_of_it(stream, ranges):
    scan = ColdScan(Snapshot(stream, *EVER), ranges, ["k"]).scan("x", rarest=False)
    found, known = named(stream, scan), everything(stream)
    assert len(found) == len(set(found))
    inside = np.logical_and.reduce(
        [(known[n] >= low) & (known[n] <= high) for n, (low, high) in ranges.items()] or [True]
    )
    assert set(known["id"][np.broadcast_to(inside, len(known["id"]))].tolist()) <= set(found)
    for group in groups(scan).values():
        columns = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
        assert all(columns[n].max_raw >= low and columns[n].min_raw <= high for n, (low, high) in ranges.items())
    assert scan.alias == "x" and scan.total_groups >= scan.groups and scan.total_bytes >= scan.bytes


def test_only_what_has_a_marked_row_is_named(stream):
    known = everything(stream)
    marked = known["k"] == 13
    for limit in (5, TUPLES):  # in parts, or all at once
        scan = ColdScan(Snapshot(stream, *EVER), {}, ["k"])
        rows = known["row"][marked].astype(np.int32)
        parts = [
            (rows[at : at + limit], np.full(len(rows[at : at + limit]), 1 / len(rows)))
            for at in range(0, len(rows), limit)
        ]
        scan.mark(parts, ranked=True)
        made = scan.scan("x", rarest=False)
        found = named(stream, made)
        assert set(known["id"][marked].tolist()) <= set(found)
        assert len(found) < TUPLES / 2
        for piece in made.pieces:
            for group in piece.groups:
                assert 13 in pq.ParquetFile(piece.path).read_row_group(group, ["k"])["k"].to_pylist()
        warm = named(stream, replace(made, pieces=[]))
        cold = set(known["id"][marked].tolist()) - set(warm)
        assert sum(piece.promise for piece in made.pieces) == pytest.approx(len(cold) / marked.sum())
        density = [piece.promise / piece.bytes for piece in made.pieces]
        assert density == sorted(density, reverse=True)
        last = scan.scan("x", rarest=True).pieces
        assert [piece.promise / piece.bytes for piece in last] == sorted(density)


def test_no_more_rows_are_asked_for_once_all_is_wanted(stream):
    known, asked = everything(stream), []

    def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(3):
            asked.append(number)
            yield known["row"].astype(np.int32), np.zeros(len(known["row"]))

    scan = ColdScan(Snapshot(stream, *EVER), {}, ["k"])
    scan.mark(parts(), ranked=False)
    assert asked == [0]
    assert sorted(named(stream, scan.scan("x", rarest=False))) == known["id"].tolist()


def test_marks_do_not_bring_back_what_is_out_of_range(stream):
    known, ranges = everything(stream), {"id": (0, 700)}
    scan = ColdScan(Snapshot(stream, *EVER), ranges, ["k"])
    scan.mark([(known["row"].astype(np.int32), np.ones(len(known["row"])))], ranked=True)
    assert groups(scan.scan("x", rarest=False)) == groups(
        ColdScan(Snapshot(stream, *EVER), ranges, ["k"]).scan("x", rarest=False)
    )


def stored(scan: Scan, columns: list[str]) -> int:
    """Bytes of these columns in the row groups that a scan names."""
    chunks = (group.column(at) for group in groups(scan).values() for at in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)


def test_bytes_are_those_of_the_columns_asked_for(stream):
    scan = ColdScan(Snapshot(stream, *EVER), {}, ["k"])
    scan.also("s")
    scan.also("s")
    made = scan.scan("x", rarest=False)
    assert made.columns == ["k", "s"]
    assert made.bytes == made.total_bytes == stored(made, ["k", "s"])


def test_a_window_that_cuts_a_group_needs_the_time(stream):
    made = ColdScan(Snapshot(stream, 1234, 2345), {}, ["k"]).scan("x", rarest=False)
    assert (made.columns, made.start, made.end) == (["k", "ts"], 1234, 2345)
    assert made.bytes == stored(made, ["k", "ts"])
    whole = ColdScan(Snapshot(stream, *EVER), {}, ["k"]).scan("x", rarest=False)
    assert (whole.columns, whole.start, whole.end) == (["k"], None, None)


def test_later_tuples_are_not_in_it(stream):
    snapshot = Snapshot(stream, *EVER)
    stream.append({"ts": [TUPLES], "k": [1], "id": [TUPLES], "s": ["new"]})
    assert TUPLES not in named(stream, ColdScan(snapshot, {}, ["k"]).scan("x", rarest=False))
