"""A store: what is there after it was closed, after it was not, and when a part of it cannot be read."""

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import promising
from promising.errors import (
    BadOptions,
    NewerFormat,
    NotAStore,
    StorageFull,
    StorageUnavailable,
    StoreInUse,
)
from promising.index.check import check_stream
from promising.index.storage import records
from promising.index.storage.store_options import StoreOptions
from tests.index.storage.flaky import FlakyDisk
from tests.index.storage.stores import OPTIONS, SMALL, TYPES, batch, crash, files, filled, opened, spoil, told

pytestmark = pytest.mark.usefixtures("small_chunks")


# --- as it should be -------------------------------------------------------------------------------------------------


def test_all_is_there_again(tmp_path):
    with opened(tmp_path) as store:
        stream = filled(store)
        store.put_query("Q", "SELECT 1", ["a"])
        before = told(stream)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert store.queries == {"Q": {"name": "Q", "statement": "SELECT 1", "reads": ["a"], "number": ""}}
        assert store.report == []
        assert check_stream(store.streams["a"]) == []
        again = store.streams["a"].append(batch(7), producer="p", sequence=8)
        assert (again.accepted, again.duplicate) == (100, True)


@pytest.mark.parametrize("checkpoints", [(), (5,), (5, 20), (5, 12, 29)])
def test_all_is_there_after_a_crash(tmp_path, checkpoints):
    store = opened(tmp_path)
    stream = filled(store, 0)
    for number in range(30):
        stream.append(batch(number))
        if number in checkpoints:
            store.checkpoint()
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert check_stream(store.streams["a"]) == []
        if checkpoints:
            assert files(tmp_path, "cold")


def test_a_summary_that_comes_and_one_that_goes(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    store.checkpoint()
    stream.create_summary("late", "k", granularity=250, collapse=(2, 3), options=OPTIONS)
    stream.drop_summary("a_s")
    stream.advance(5000)
    stream.append(batch(60))
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert list(store.streams["a"].summaries) == ["a_k", "late"]


def test_a_relaxed_store_is_synced_by_itself(tmp_path, ticking):
    store = opened(tmp_path, StoreOptions(sync="relaxed", checkpoint_bytes=1 << 60))
    stream = filled(store)
    (kept,) = store._kept.values()
    until = time.monotonic() + 120
    while kept.wal.durable < kept.wal.last:
        assert time.monotonic() < until
        time.sleep(0.02)
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before


def test_a_session_keeps_what_it_is_told(tmp_path):
    with promising.open(tmp_path / "data") as session:
        session.execute("CREATE STREAM A (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts LATENESS 1 SECOND")
        session.execute("CREATE SUMMARY sa ON a (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (4, 5)")
        session.execute("CREATE CONTINUOUS QUERY q AS SELECT k FROM a WINDOW 1 MINUTE")
        session.ingest("a", {"ts": [1, 2, 3], "k": [7, 7, 8]})
    with promising.open(tmp_path / "data") as session:
        assert session.query("SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY k").to_arrow().to_pydict() == {
            "k": [7, 8],
            "n": [2, 1],
        }
        assert session.stream("a").lateness == 1_000_000
        assert session.estimate("SA", [7]).value.tolist() == [2.0]
        assert list(session.catalog.queries) == ["q"]
        session.execute("DROP QUERY q")
        session.execute("DROP STREAM a CASCADE")
    with promising.open(tmp_path / "data") as session:
        assert not session.catalog.streams


# --- as it should not be ---------------------------------------------------------------------------------------------


def test_one_process_at_a_time(tmp_path):
    with opened(tmp_path):
        with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()}; stop it first"):
            opened(tmp_path)
        code = f"import promising; promising.open({str(tmp_path)!r})"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        assert f"in use by process {os.getpid()}" in ended.stderr
    opened(tmp_path).close()


def test_a_path_that_is_no_store(tmp_path):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(NotAStore, match="is a file"):
        opened(tmp_path / "file")
    with pytest.raises(NotAStore, match="other things in it, such as file"):
        opened(tmp_path)


def test_a_seed_is_for_good(tmp_path):
    with opened(tmp_path, seed=5) as store:
        assert store.seed == 5
    with opened(tmp_path) as store:
        assert store.seed == 5
    with pytest.raises(BadOptions, match="made with another seed"):
        opened(tmp_path, seed=6)
    opened(tmp_path, seed=5).close()


def test_a_directory_of_a_newer_release(tmp_path):
    opened(tmp_path).close()
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(tmp_path / "manifest.sqlite") as db:
        db.execute("PRAGMA user_version=99")
        db.execute("UPDATE digest SET version=99")
    db.close()
    with pytest.raises(NewerFormat, match="format 99; this release reads up to 1"):
        opened(tmp_path)


@pytest.mark.parametrize("setting", [{"sync": "never"}, {"hot_tuples": -1}, {"run_tuples": 1.5}, {"cold": "folder"}])
def test_settings_that_cannot_be(setting):
    with pytest.raises(BadOptions):
        StoreOptions(**setting)


def test_a_damaged_log_is_told_with_every_answer(tmp_path):
    with promising.open(tmp_path) as session:
        session.execute("CREATE STREAM a (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        for number in range(5):
            session.ingest("a", {"ts": [number] * 50, "k": [number] * 50})
        assert session.store is not None
        crash(session.store)
    (path,) = files(tmp_path, "wal")
    spoil(path, path.stat().st_size // 2)
    for _ in range(2):
        with promising.open(tmp_path) as session:
            answer = session.query("SELECT count(*) AS n FROM a")
            assert answer.to_arrow().to_pydict() == {"n": [200]}
            (warning,) = answer.progress.warnings
            assert "stream 'a' is not whole" in warning
            assert path.name in warning


def test_a_full_disk_refuses_and_goes_on(tmp_path):
    disk = FlakyDisk()
    with opened(tmp_path, disk=disk) as store:
        stream = filled(store)
        before = told(stream)
        disk.fail_next(lasting=True)
        with pytest.raises(StorageFull):
            stream.append(batch(40), producer="p", sequence=40)
        with pytest.raises(StorageFull):
            store.checkpoint()
        with pytest.raises(StorageFull):
            stream.create_summary("c", "k", granularity=100, collapse=(2, 2), options=OPTIONS)
        assert told(stream) == before
        assert store.stats()["checkpoint_failures"] >= 1
        disk.mend()
        assert not stream.append(batch(40), producer="p", sequence=40).duplicate
        store.checkpoint()
        before = told(stream)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_log_that_is_gone_is_missed(tmp_path, checkpointed):
    store = opened(tmp_path)
    filled(store)
    if checkpointed:
        store.checkpoint()
    crash(store)
    for path in files(tmp_path, "wal"):
        path.unlink()
    with opened(tmp_path) as store:
        assert any("there is no log" in lost for lost in store.damages["a"])


def test_a_stream_without_a_tuple_has_a_log_as_well(tmp_path):
    store = opened(tmp_path)
    store.create_stream("a", TYPES, "ts")
    crash(store)
    with opened(tmp_path) as store:
        assert store.damages == {}
        assert list(store.streams) == ["a"]


def test_what_is_closed_writes_nothing(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    store.close()
    before = sorted(p.name for p in tmp_path.rglob("*"))
    for change in (
        store.checkpoint,
        next(iter(store._kept.values())).checkpoint,
        lambda: store.create_stream("b", TYPES, "ts"),
        lambda: stream.append(batch(40)),
        lambda: stream.advance(1 << 40),
    ):
        with pytest.raises(StorageUnavailable, match="closed"):
            change()
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_record_that_says_nothing_is_told_and_the_rest_is_used(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    (kept,) = store._kept.values()
    lsn = kept.wal.append(records.APPEND, [b"no batch at all"])
    stream.append(batch(40))
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert f"record {lsn} of the log could not be used" in store.damages["a"][0]


def test_large_batches_are_synced_while_they_are_added(tmp_path):
    with opened(tmp_path, StoreOptions(checkpoint_bytes=1 << 60)) as store:
        stream = filled(store, 0)
        for number in range(3):
            stream.append(batch(number, 3000))
        (kept,) = store._kept.values()
        assert kept.wal.durable == kept.wal.last
        before = told(stream)
        crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before


def test_a_closed_store_takes_no_more_and_leaves_the_next_one_alone(tmp_path):
    store = opened(tmp_path)
    stream = store.create_stream("a", TYPES, "ts", max_tuples=1 << 14)
    stream.append(batch(0), producer="p", sequence=1)
    store.close()
    other = opened(tmp_path)
    other.streams["a"].append(batch(1), producer="q", sequence=1)
    for change in (
        lambda: stream.append(batch(2), producer="r", sequence=1),
        lambda: stream.advance(1 << 40),
        lambda: store.put_query("q", "SELECT 1", ["a"]),
    ):
        with pytest.raises(StorageUnavailable):
            change()
    crash(other)
    with opened(tmp_path) as store:
        again = store.streams["a"]
        assert [again.added(who, 1) is not None for who in "pqr"] == [True, True, False]
        assert (again.count, store.queries, store.damages, store.report) == (200, {}, {}, [])


def test_a_sync_that_fails_at_the_end_lets_go_of_the_directory_and_closes_the_others(tmp_path):
    disk = FlakyDisk()
    store = opened(tmp_path, replace(SMALL, sync="relaxed"), disk=disk)
    streams = [store.create_stream(name, TYPES, "ts", max_tuples=1 << 14) for name in "ab"]
    for stream in streams:
        stream.append(batch(0))
    disk.fail_next(errno.EIO, lasting=True)
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        store.close()
    disk.mend()
    store.close()
    for stream in streams:
        with pytest.raises(StorageUnavailable, match="is closed"):
            stream.append(batch(1))
    with opened(tmp_path) as store:
        assert [stream.count for stream in store.streams.values()] == [100, 100]


@pytest.mark.parametrize("call", ["exists", "iterdir"])
def test_a_directory_that_may_not_be_looked_at(tmp_path, monkeypatch, call):
    def denied(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, denied)
        with pytest.raises(StorageUnavailable, match="Permission denied; let the service's user write and read there"):
            opened(tmp_path)
    opened(tmp_path).close()
