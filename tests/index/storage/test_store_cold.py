"""Cold tuples of a store: where they lie, and a store that cannot reach or read them."""

import asyncio
import os
import threading

import numpy as np
import pyarrow as pa
import pytest

import promising.server.store_lifecycle as served
from promising.errors import BadOptions, DataDamaged, StorageUnavailable
from promising.index.check import check_stream
from promising.index.storage.cold import Cold
from promising.index.storage.store_options import StoreOptions
from promising.query.session import Session
from promising.settings import Settings
from tests.index.storage.stores import OPTIONS, TYPES, batch, crash, files, filled, opened, spoil, told

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.deep("waits for many checkpoints")
def test_old_tuples_go_cold_and_their_files_go_in_the_end(tmp_path):
    with opened(tmp_path) as store:
        stream = filled(store, 0)
        seen: set[str] = set()
        for number in range(300):
            stream.append(batch(number))
            if number % 10 == 9:
                store.checkpoint()
                seen |= {path.name for path in files(tmp_path, "cold")}
        with stream.reading() as log:
            runs, warm = log.runs, log.warm
        assert warm < stream.count / 2
        left = {path.name for path in files(tmp_path, "cold")}
        assert {f"{run:016x}.parquet" for run in runs} <= left < seen
        assert len(files(tmp_path, "checkpoint")) == 2
        assert len(files(tmp_path, "wal")) < 10
        assert check_stream(stream) == []


@pytest.mark.deep("waits for many checkpoints")
def test_cold_tuples_can_lie_in_an_object_store(tmp_path):
    options = StoreOptions(hot_tuples=0, run_tuples=0, checkpoint_bytes=1 << 60, cold=f"memory://cold-{os.getpid()}")
    with opened(tmp_path, options) as store:
        stream = filled(store)
        store.checkpoint()
        with stream.reading() as log:
            assert log.runs
        assert files(tmp_path, "cold") == []
        before = told(stream)
    with pytest.raises(BadOptions, match="lie in memory://"):
        opened(tmp_path)
    with opened(tmp_path, options) as store:
        assert told(store.streams["a"]) == before
        store.drop_stream("a")


@pytest.mark.parametrize("way", ["spoiled", "missing"])
def test_cold_tuples_that_cannot_be_read_are_an_error_and_not_a_gap(tmp_path, way):
    with opened(tmp_path) as store:
        stream = filled(store)
        store.checkpoint()
    path = files(tmp_path, "cold")[0]
    if way == "missing":
        path.unlink()
    else:
        for at in range(8, path.stat().st_size // 2, 50):
            spoil(path, at)
    with opened(tmp_path) as store:
        stream = store.streams["a"]
        with pytest.raises(DataDamaged, match=path.name):
            stream.take(stream._log.rows())
        newest = stream.latest or 0
        assert len(stream.summaries["a_k"].probe(np.arange(20), (newest - 10, newest + 1))) == 11
        assert stream.append(batch(31)).accepted == 100


def test_a_run_that_the_manifest_does_not_name_is_missed(tmp_path):
    with opened(tmp_path) as store:
        filled(store)
        store.checkpoint()
        (kept,) = store._kept.values()
        with kept.stream.reading() as log:
            run = log.runs[0]
        with store._manifest.change() as change:
            change.delete("cold", kept._key(run))
        crash(store)
    with opened(tmp_path) as store:
        assert f"run {run} of cold tuples is not in the manifest" in store.damages["a"][0]


def test_who_sends_faster_than_tuples_can_leave_waits(tmp_path, monkeypatch):
    with opened(tmp_path) as store:
        filled(store, 60)
        (kept,) = store._kept.values()
        monkeypatch.setattr("promising.index.storage.cooling.PATIENCE", 0.0)
        seen = []
        write = kept.cold.write

        def watched(*given):
            seen.append(kept._cooling.abreast.is_set())
            return write(*given)

        monkeypatch.setattr(kept.cold, "write", watched)
        kept.checkpoint()
        assert seen[0] is False
        assert kept._cooling.abreast.is_set()
        kept._cooling.abreast.clear()
        assert kept.stream.append(batch(70)).accepted == 100


# --- the cold place is away ------------------------------------------------------------------------------------------


def away(*_):
    raise StorageUnavailable("the object store is away")


def with_a_summary_of_cold_tuples(store):
    """A stream with a summary that is younger than the files its newest tuples are in."""
    stream = store.create_stream("a", TYPES, "ts", max_tuples=1 << 14)
    for number in range(5):
        stream.append(batch(number), producer="p", sequence=number + 1)
    store.checkpoint("a")
    assert stream._log.runs
    stream.create_summary("k", "k", granularity=1000, collapse=(3, 4), options=OPTIONS)
    return stream


def test_a_zone_is_sealed_without_a_look_at_cold_tuples(tmp_path, monkeypatch):
    store = opened(tmp_path)
    stream = with_a_summary_of_cold_tuples(store)
    zones = len(stream.summaries["k"].describe().zones)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "column", away)
        assert not stream.append(batch(12), producer="p", sequence=6).duplicate
        assert stream.append(batch(12), producer="p", sequence=6).duplicate
    assert len(stream.summaries["k"].describe().zones) > zones
    assert stream.accepted == stream.summaries["k"].count == 600
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert check_stream(store.streams["a"]) == []


def test_a_start_without_the_cold_place_is_refused_and_costs_nothing(tmp_path, monkeypatch):
    store = opened(tmp_path)
    stream = with_a_summary_of_cold_tuples(store)
    stream.append(batch(12), producer="p", sequence=6)
    before = told(stream)
    crash(store)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "column", away)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="is away"):
                opened(tmp_path)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert (store.damages, store.report) == ({}, [])


def test_checkpoints_are_written_without_the_cold_place(tmp_path, monkeypatch):
    store = opened(tmp_path)
    stream = filled(store, 12)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "write", away)
        for number in (20, 21, 22):
            stream.append(batch(number))
            store.checkpoint("a")
        assert len(store._manifest.all("checkpoint")) == 2
        assert store._kept["a"]._covered == store._kept["a"].wal.last
        assert "is away" in (store._kept["a"].failed or "")
        assert not files(tmp_path, "cold")
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        store.checkpoint()
        assert files(tmp_path, "cold")
        assert told(store.streams["a"]) == before


def test_a_damaged_cold_file_is_no_reason_not_to_start_or_to_tell_of_streams(tmp_path):
    with opened(tmp_path) as store:
        stream = store.create_stream("a", TYPES, "ts", lateness=50, max_tuples=1 << 14, keep=1600)
        stream.create_summary("k", "k", granularity=200, collapse=(2, 2), options=OPTIONS)
        for number in range(30):
            stream.append(batch(number))
        store.checkpoint()
        _, _, earliest, latest = stream._log.spans()
        assert earliest[0] < (stream.oldest or 0) <= latest[0]  # to count what is kept takes a look at its tuples
    for path in files(tmp_path, "cold"):
        path.write_bytes(b"x" * 10)
    with opened(tmp_path) as store:
        shown = Session(store=store).execute("SHOW STREAMS")
        assert isinstance(shown, pa.Table)
        assert shown["name"].to_pylist() == ["a"]
        assert shown["tuples"][0].as_py() >= store.streams["a"]._log.warm
    session = asyncio.run(served.opened(Settings(data=tmp_path), threading.Event()))
    assert list(session.catalog.streams) == ["a"]
    session.close()
