"""Streams and summaries that are dropped from a store: their files, their queries, and work under way on them."""

import errno
import threading

import pytest

from promising.errors import DuplicateName, StorageFull, StorageUnavailable, UnknownName
from promising.index.storage import stream_store
from promising.index.storage.image import write_image
from promising.query.session import Session
from tests.index.storage.flaky import FlakyDisk
from tests.index.storage.stores import TYPES, batch, crash, files, filled, opened

pytestmark = pytest.mark.usefixtures("small_chunks")


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


def test_a_stream_that_was_dropped_takes_nothing(tmp_path):
    with opened(tmp_path) as store:
        stream = filled(store, 2)
        store.drop_stream("a")
        with pytest.raises(StorageUnavailable, match="'a' has been dropped"):
            stream.append(batch(3))


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
