"""A store: what is there after it was closed, after it was not, and when a part of it cannot be read."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import promising
from promising.errors import (
    BadOptions,
    DataDamaged,
    DuplicateName,
    NewerFormat,
    NotAStore,
    StorageFull,
    StorageUnavailable,
    StoreInUse,
    UnknownName,
)
from promising.index import Options
from promising.index.check import check_stream
from promising.index.storage import records
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.stream import Stream
from promising.testing import ManualClock
from tests.index.storage.flaky import FlakyDisk

CLOCK = ManualClock(1 << 50)
TYPES = {"ts": "timestamp", "k": "int", "s": "string", "x": "float"}
SMALL = StoreOptions(segment_bytes=1 << 16, checkpoint_bytes=1 << 60, hot_tuples=0, run_tuples=0, sync_ahead=False)
OPTIONS = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("promising.index.log.CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.store.TICK", 3600.0)  # checkpoints come when the test says so


@pytest.fixture
def ticking(monkeypatch):
    monkeypatch.setattr("promising.index.storage.store.TICK", 0.01)


def opened(path: Path, options: StoreOptions = SMALL, **more) -> Store:
    return Store.open(path, clock=CLOCK, options=options, **more)


def batch(number: int, n: int = 100):
    rng = np.random.default_rng(number)
    k = rng.integers(0, 20, n)
    x = [None if v % 7 == 0 else v / 2 for v in k.tolist()]
    return {"ts": number * 100 + np.arange(n), "k": k, "s": [f"é{v}" for v in k.tolist()], "x": x}


def filled(store: Store, batches: int = 30, name: str = "a") -> Stream:
    stream = store.create_stream(name, TYPES, "ts", lateness=50, max_tuples=1 << 14)
    stream.create_summary(f"{name}_k", "k", granularity=200, collapse=(3, 4), options=OPTIONS)
    stream.create_summary(f"{name}_s", "s", granularity=100, collapse=(2, 5), options=OPTIONS, structure="grid")
    for number in range(batches):
        stream.append(batch(number), producer="p", sequence=number + 1)
    return stream


def told(stream: Stream):
    """All that can be asked of a stream."""
    rows = stream._log.rows()
    asked = {"k": np.arange(25), "s": [f"é{v}" for v in range(25)]}
    out = [stream.watermark, stream.latest, stream.accepted, stream.refused, stream.take(rows).to_pydict()]
    for name, summary in stream.summaries.items():
        found = summary.fetch(asked[summary.key])
        out += [
            name,
            replace(summary.describe(), bytes=0),
            summary.estimate(asked[summary.key]).value.tolist(),
            found[1].to_pydict(),
        ]
    return repr(out)


def crash(store: Store) -> None:
    """Leave it as a process does that is killed."""
    store._ended.set()
    for thread in store._threads:
        thread.join()
    for kept in store._kept.values():
        if kept.wal._handle is not None:
            kept.wal._disk.close(kept.wal._handle)
    store._let_go()


def files(root: Path, kind: str) -> list[Path]:
    return sorted(root.glob(f"streams/*/{kind}/*"))


def spoil(path: Path, at: int = -100) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


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


def test_a_summary_that_comes_and_one_that_goes(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    store.checkpoint()
    stream.create_summary("late", "k", granularity=1000, collapse=(2, 3), options=OPTIONS)
    stream.drop_summary("a_s")
    stream.advance(5000)
    stream.append(batch(60))
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert list(store.streams["a"].summaries) == ["a_k", "late"]


def test_a_stream_that_is_dropped_is_gone_with_its_files(tmp_path):
    with opened(tmp_path) as store:
        filled(store)
        filled(store, 3, "b")
        store.checkpoint()
        store.put_query("q", "SELECT 1", ["a"])
        store.drop("a", ["q"])
        assert list(store.streams) == ["b"]
        assert len({path.parent for kind in ("wal", "checkpoint", "cold") for path in files(tmp_path, kind)}) == 2
        with pytest.raises(UnknownName):
            store.drop_stream("a")
        with pytest.raises(DuplicateName):
            store.create_stream("b", TYPES, "ts")
        store.checkpoint()
    with opened(tmp_path) as store:
        assert (list(store.streams), store.queries) == (["b"], {})
        filled(store, 2)
        store.put_query("q", "SELECT 2", ["a"])
        store.drop_query("q")
    with opened(tmp_path) as store:
        assert sorted(store.streams) == ["a", "b"]
        assert store.queries == {}


def test_a_checkpoint_is_written_when_it_is_due(tmp_path, ticking):
    with opened(tmp_path, StoreOptions(segment_bytes=1 << 16, checkpoint_bytes=1 << 16)) as store:
        filled(store, 60)
        until = time.monotonic() + 120
        while not store.stats()["checkpoints"]:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_what_is_warm_beyond_measure_makes_a_checkpoint_due(tmp_path, ticking):
    with opened(tmp_path) as store:
        filled(store, 60)
        until = time.monotonic() + 120
        while not files(tmp_path, "cold"):
            assert time.monotonic() < until
            time.sleep(0.02)


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


def test_a_checkpoint_that_cannot_be_read_is_set_aside_for_the_one_before(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    store.checkpoint()
    stream.append(batch(31))
    store.checkpoint()
    stream.append(batch(32))
    before = told(stream)
    crash(store)
    newest = files(tmp_path, "checkpoint")[-1]
    spoil(newest)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert newest.name in "".join(store.report)
        assert store.damages == {}
        assert list((tmp_path / "aside").iterdir())
        store.checkpoint()
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert store.report == []


def test_no_checkpoint_that_can_be_read_is_told_for_good(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    for number in (31, 32, 33):
        store.checkpoint()
        stream.append(batch(number))
    crash(store)
    for path in files(tmp_path, "checkpoint"):
        spoil(path)
    for _ in range(2):
        with opened(tmp_path) as store:
            stream = store.streams["a"]
            assert "no checkpoint of stream 'a' can be read" in store.damages["a"][0]
            assert list(stream.summaries) == ["a_k", "a_s"]
            assert stream.append(batch(40), producer="p", sequence=100).accepted == 100


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


def test_a_stream_that_was_dropped_takes_nothing(tmp_path):
    with opened(tmp_path) as store:
        stream = filled(store, 2)
        store.drop_stream("a")
        with pytest.raises(StorageUnavailable, match="'a' has been dropped"):
            stream.append(batch(3))


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


def test_a_checkpoint_of_another_time_is_not_used(tmp_path):
    store = opened(tmp_path)
    stream = filled(store)
    store.checkpoint()
    stream.append(batch(40))
    store.checkpoint()
    before = told(stream)
    crash(store)
    older, newer = files(tmp_path, "checkpoint")
    newer.write_bytes(older.read_bytes())
    with opened(tmp_path) as store:
        assert "should cover" in store.report[0]
        assert told(store.streams["a"]) == before


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
