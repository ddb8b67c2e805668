"""Checkpoints of a store: when they are written, and a start when some cannot be read."""

import threading
import time
from itertools import count
from pathlib import Path

import pytest

from promising.errors import StorageUnavailable
from promising.index.check import check_stream
from promising.index.storage.disk import Disk
from promising.index.storage.store_options import StoreOptions
from tests.index.storage.stores import batch, crash, files, filled, opened, spoil, told

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_a_checkpoint_is_written_when_it_is_due(tmp_path, ticking):
    with opened(tmp_path, StoreOptions(segment_bytes=1 << 16, checkpoint_bytes=1 << 16)) as store:
        filled(store, 60)
        until = time.monotonic() + 120
        while not store.stats()["checkpoints"]:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_the_log_to_replay_stays_small_beside_the_checkpoint(tmp_path):
    with opened(tmp_path, StoreOptions(checkpoint_bytes=4096, segment_bytes=1 << 16)) as store:
        stream = filled(store, 200)
        kept = store._kept["a"]
        assert kept.due  # by the option
        store.checkpoint()
        whole = files(tmp_path, "checkpoint")[-1].stat().st_size
        assert whole > 8 * 4096
        for number in count(200):
            stream.append(batch(number, 5))
            if kept.due:
                break
        assert whole / 4 <= kept.wal.bytes_since(kept._covered) < whole / 3


def test_streams_are_recovered_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr("promising.index.storage.store.AT_ONCE", 2)
    store = opened(tmp_path)
    before = {name: told(filled(store, 10, name)) for name in ("a", "b", "c")}
    crash(store)
    both = threading.Barrier(2, timeout=120)  # broken if one is recovered after another

    class Waiting(Disk):
        def read_into(self, path: Path, offset: int, place: memoryview) -> int:
            if path.suffix == ".wal" and path.parent.parent.name in first:
                both.wait()
            return super().read_into(path, offset, place)

    first = sorted(path.name for path in (tmp_path / "streams").iterdir())[:2]
    with opened(tmp_path, disk=Waiting()) as store:
        assert {name: told(stream) for name, stream in store.streams.items()} == before


def test_a_stream_that_cannot_be_recovered_ends_the_start_with_its_error(tmp_path):
    store = opened(tmp_path)
    for name in ("a", "b"):
        filled(store, 5, name)
    crash(store)

    class Failing(Disk):
        def read_into(self, path: Path, offset: int, place: memoryview) -> int:
            raise StorageUnavailable(f"{path} cannot be read")

    with pytest.raises(StorageUnavailable, match=r"\.wal cannot be read"):
        opened(tmp_path, disk=Failing())
    with opened(tmp_path) as store:
        assert [stream.count for stream in store.streams.values()] == [500, 500]


def test_what_is_warm_beyond_measure_makes_a_checkpoint_due(tmp_path, ticking):
    with opened(tmp_path) as store:
        filled(store, 60)
        until = time.monotonic() + 120
        while not files(tmp_path, "cold"):
            assert time.monotonic() < until
            time.sleep(0.02)


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
