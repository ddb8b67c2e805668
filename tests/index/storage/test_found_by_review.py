"""What once went wrong in a store: where two failures meet, or one comes at the wrong moment."""

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import promising.server.store_lifecycle as served
from promising.errors import StorageFull, StorageUnavailable, UnknownName
from promising.index.check import check_stream
from promising.index.storage import stream_store
from promising.index.storage.cold import Cold
from promising.index.storage.image import write_image
from promising.index.storage.manifest import Manifest
from promising.query.session import Session
from promising.settings import Settings
from tests.index.storage.flaky import FlakyDisk
from tests.index.storage.test_store import OPTIONS, SMALL, TYPES, batch, crash, files, filled, opened, spoil, told


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("promising.index.log.CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.store.TICK", 3600.0)  # checkpoints come when the test says so


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


# --- the cold place is away ------------------------------------------------------------------------------------------


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
        stream = store.create_stream("a", TYPES, "ts", lateness=50, max_tuples=1 << 14)
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
    session = asyncio.run(served.opened(Settings(data=tmp_path)))
    assert list(session.catalog.streams) == ["a"]
    session.close()


def test_a_service_that_cannot_tell_what_it_found_lets_go_of_the_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "_tell", away)
    with pytest.raises(StorageUnavailable):
        asyncio.run(served.opened(Settings(data=tmp_path)))
    opened(tmp_path).close()


# --- the end ---------------------------------------------------------------------------------------------------------


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


def test_a_stream_is_dropped_while_its_checkpoint_is_being_written(tmp_path, monkeypatch):
    store = opened(tmp_path)
    filled(store, 5)
    other = filled(store, 5, "b")
    begun, go = threading.Event(), threading.Event()

    def slow(*given):
        begun.set()
        assert go.wait(120)
        return write_image(*given)

    monkeypatch.setattr(stream_store, "write_image", slow)
    session = Session(store=store)
    checkpoint = threading.Thread(target=store.checkpoint, args=("a",))
    drop = threading.Thread(target=session.execute, args=("DROP STREAM a CASCADE",))
    checkpoint.start()
    try:
        assert begun.wait(60)
        drop.start()
        drop.join(60)
        assert not drop.is_alive()
        assert list(store.streams) == ["b"]
        assert other.append(batch(6)).accepted == 100
        assert store.stats()["damages"] == 0
    finally:
        go.set()
        checkpoint.join()
        drop.join()
    assert not store._manifest.all("checkpoint")
    store.close()
    assert len({path.parent.parent for kind in ("wal", "checkpoint") for path in files(tmp_path, kind)}) == 1
    with opened(tmp_path) as store:
        assert (list(store.streams), store.report) == (["b"], [])


def test_an_answer_about_a_stream_that_is_dropped_says_so(tmp_path):
    with opened(tmp_path) as store:
        filled(store)
        store.checkpoint()
        session = Session(store=store)
        answer = session.query("SELECT * FROM a").stream()
        session.execute("DROP STREAM a CASCADE")
        with pytest.raises(UnknownName, match="has been dropped"):
            list(answer)


# --- in the middle of something --------------------------------------------------------------------------------------


def after_the_commit(monkeypatch, problem):
    """The next change of a manifest is written, and then this happens."""
    real = Manifest._commit

    def commit(self, *given):
        real(self, *given)
        monkeypatch.setattr(Manifest, "_commit", real)
        raise problem

    monkeypatch.setattr(Manifest, "_commit", commit)


def test_a_checkpoint_that_was_named_after_all_is_not_written_over(tmp_path, monkeypatch):
    written: list[str] = []

    def noted(disk, path, tree):
        written.append(path.name)
        return write_image(disk, path, tree)

    def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stream_store, "write_image", noted)
    store = opened(tmp_path)
    stream = filled(store, 5)
    after_the_commit(monkeypatch, StorageUnavailable("disk I/O error"))
    with pytest.raises(StorageUnavailable):
        store.checkpoint("a")
    for number in (5, 6, 7):
        stream.append(batch(number), producer="p", sequence=number + 1)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "_commit", end)
            with pytest.raises(KeyboardInterrupt):
                store.checkpoint("a")
    assert len(set(written)) == 3
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert (store.streams["a"].count, store.streams["a"].accepted) == (800, 800)
        assert told(store.streams["a"]) == before
        assert (store.report, store.damages) == ([], {})


@pytest.mark.parametrize("done", [False, True])
def test_an_interrupted_change_of_the_manifest_is_there_or_not_and_others_follow(tmp_path, monkeypatch, done):
    faults: list[BaseException] = []

    def fault(point):
        if point == "before" and faults:
            raise faults.pop()

    store = opened(tmp_path, fault=fault)
    if done:
        after_the_commit(monkeypatch, KeyboardInterrupt())
    else:
        faults.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.put_query("maybe", "SELECT 1", [])
    assert (store._manifest.get("query", "maybe") is not None) == done
    store.put_query("later", "SELECT 2", [])
    kept = store._manifest.all("query")
    store.close()
    with opened(tmp_path) as store:
        assert store._manifest.all("query") == kept
        assert ("maybe" in store.queries) == done
        assert "later" in store.queries


def test_what_was_interrupted_in_the_middle_is_refused_and_right_after_a_start(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with opened(tmp_path / "other", seed=7) as store:
        whole = told(filled(store, 6))
    store = opened(tmp_path / "store", seed=7)
    stream = filled(store, 5)
    with monkeypatch.context() as patch:
        patch.setattr(stream.summaries["a_s"].state, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.append(batch(5), producer="p", sequence=6)
    with pytest.raises(StorageUnavailable, match="open the store again"):
        stream.append(batch(5), producer="p", sequence=6)
    with pytest.raises(StorageUnavailable, match="open the store again"):
        store.checkpoint()
    store.close()
    assert not files(tmp_path / "store", "checkpoint")
    with opened(tmp_path / "store") as store:
        stream = store.streams["a"]
        assert stream.append(batch(5), producer="p", sequence=6).duplicate
        assert told(stream) == whole
        assert check_stream(stream) == []


def test_a_summary_that_cannot_be_dropped_keeps_its_queries(tmp_path):
    disk = FlakyDisk()
    store = opened(tmp_path, disk=disk)
    filled(store, 1)
    store.put_query("q", "SELECT 1", ["a", "a_k"])
    session = Session(store=store)
    disk.fail_next(errno.ENOSPC, lasting=True)
    with pytest.raises(StorageFull):
        session.execute("DROP SUMMARY a_k CASCADE")
    assert (list(session.catalog.queries), list(store.queries)) == (["q"], ["q"])
    assert list(session.catalog.summaries) == ["a_k", "a_s"]
    disk.mend()
    session.execute("DROP SUMMARY a_k CASCADE")
    assert (list(session.catalog.queries), list(session.catalog.summaries)) == ([], ["a_s"])
    crash(store)
    with opened(tmp_path) as store:
        assert (list(store.queries), list(store.streams["a"].summaries)) == ([], ["a_s"])


# --- at the start ----------------------------------------------------------------------------------------------------


def test_the_only_checkpoint_is_damaged_and_the_log_has_it_all(tmp_path):
    store = opened(tmp_path)
    stream = filled(store, 6)
    store.checkpoint()
    before = told(stream)
    crash(store)
    (path,) = files(tmp_path, "checkpoint")
    spoil(path, path.stat().st_size // 2)
    with opened(tmp_path) as store:
        assert told(store.streams["a"]) == before
        assert check_stream(store.streams["a"]) == []
        assert store.damages == {}
        assert path.name in "".join(store.report)


@pytest.mark.parametrize("call", ["exists", "iterdir"])
def test_a_directory_that_may_not_be_looked_at(tmp_path, monkeypatch, call):
    def denied(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, denied)
        with pytest.raises(StorageUnavailable, match="Permission denied; let the service's user write and read there"):
            opened(tmp_path)
    opened(tmp_path).close()


def test_strings_are_given_back_alike_with_and_without_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr("promising.index.log.SLICE", 64)
    options = replace(SMALL, hot_tuples=1 << 40)

    def lived(folder: Path, restarted: bool):
        def rows(k: int, at: int, width: int):
            return {"ts": at + np.arange(64), "k": np.full(64, k), "s": ["x" * width] * 64}

        store = opened(folder, options, seed=7)
        types = {"ts": "timestamp", "k": "int", "s": "string"}
        stream = store.create_stream("a", types, "ts", max_tuples=1 << 14, max_string_bytes=64 * 3000)
        stream.create_summary("k", "k", granularity=1000, collapse=(2, 2), options=OPTIONS)
        for number in range(60):
            stream.append(rows(number % 5, number * 10, 20))
        stream.append(rows(1, 20_000, 800))
        if restarted:
            crash(store)
            store = opened(folder, options, seed=7)
            stream = store.streams["a"]
        stream.create_summary("late", "k", granularity=1000, collapse=(2, 2), options=OPTIONS)
        store.checkpoint()
        found = stream.count, stream.summaries["late"].describe().expired
        store.close()
        return found, [path.read_bytes() for path in files(folder, "checkpoint")]

    once, twice = lived(tmp_path / "once", False), lived(tmp_path / "twice", True)
    assert once[0] == twice[0] == (64, 0)
    assert once[1] == twice[1]
