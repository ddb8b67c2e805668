"""Checkpoints of a store: when they are written, and a start when some cannot be read."""

import time

import pytest

from promising.index.check import check_stream
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
