"""Stores of streams without a limit, of those with one, and of versions whose streams did not grow."""

from dataclasses import replace

import numpy as np
import pytest

from promising.errors import BadOptions, CeilingReached
from promising.index.check import check_stream
from promising.index.storage.store import settings_of
from promising.index.storage.store_options import StoreOptions
from tests.index.storage.stores import OPTIONS, SMALL, opened
from tests.index.world import small_chunks

TYPES = {"ts": "timestamp", "k": "int"}
OLD = {"lateness": 0, "max_future": 50, "max_tuples": 1 << 22, "max_string_bytes": 1 << 30}


def batch(first: int, n: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + n)
    return {"ts": numbers, "k": numbers % 20}


def test_a_limit_that_nobody_set_is_none_and_others_remain():
    assert settings_of(OLD) == {**OLD, "max_tuples": None, "max_string_bytes": None}
    other = {**OLD, "max_tuples": 1 << 21, "max_string_bytes": 5}
    assert settings_of(other) == other
    assert settings_of({**OLD, "grows": True}) == OLD


def test_a_limit_survives_a_restart_and_so_does_none(tmp_path):
    limits = {"a": None, "b": 1 << 22, "c": 1000}
    with opened(tmp_path) as store:
        for name, limit in limits.items():
            given = {} if limit is None else {"max_tuples": limit}
            store.create_stream(name, TYPES, "ts", **given)
    with opened(tmp_path) as store:
        assert {name: stream.max_tuples for name, stream in store.streams.items()} == limits


def test_a_store_of_a_version_whose_streams_did_not_grow(tmp_path, monkeypatch):
    """Its default becomes no limit: after it the stream takes more than it could."""
    small_chunks(monkeypatch, 64)
    with opened(tmp_path) as store:
        for name, limit in (("default", 1 << 22), ("limited", 256)):
            stream = store.create_stream(name, TYPES, "ts", max_tuples=limit)
            stream.create_summary(f"{name}_k", "k", granularity=50, options=OPTIONS)
            stream.append(batch(0, 200))
    monkeypatch.setattr("promising.index.storage.store.settings_of", lambda e: settings_of({**e, "grows": False}))
    with opened(tmp_path) as store:
        default, limited = store.streams["default"], store.streams["limited"]
        assert (default.max_tuples, limited.max_tuples) == (None, 256)
        assert default.append(batch(200, 2000)).accepted == 2000
        with pytest.raises(CeilingReached, match="the stream keeps up to 256"):
            limited.append(batch(200, 2000))
        assert check_stream(default) == []
        assert default.summaries["default_k"].describe().tuples == 2200


def test_a_stream_that_grew_is_recovered_from_log_and_checkpoint(tmp_path, monkeypatch):
    small_chunks(monkeypatch, 64)
    with opened(tmp_path) as store:
        stream = store.create_stream("s", TYPES, "ts")
        stream.create_summary("s_k", "k", granularity=50, options=OPTIONS)
        for number in range(10):
            stream.append(batch(number * 300, 300))
            if number == 4:
                store.checkpoint()
    with opened(tmp_path) as store:
        stream = store.streams["s"]
        assert stream.kept == 3000
        found = stream.summaries["s_k"].fetch([3])[1].column("ts").cast("int64").to_pylist()
        assert sorted(found) == list(range(3, 3000, 20))
        assert stream.append(batch(3000, 3000)).accepted == 3000
        assert check_stream(stream) == []


def test_under_pressure_what_has_left_g_1_goes_to_disk(tmp_path, monkeypatch):
    small_chunks(monkeypatch, 64)
    options = replace(SMALL, hot_tuples=1 << 40, run_tuples=64, memory_bytes=300_000)
    with opened(tmp_path, options) as store:
        stream = store.create_stream("s", TYPES, "ts")
        stream.create_summary("s_k", "k", granularity=50, options=OPTIONS)
        assert stream.memory is not None
        number = 0
        while not stream.memory.pressed:
            stream.append(batch(number * 200, 200))
            number += 1
        with stream.reading() as log:
            assert log.warm == number * 200
        (kept,) = store._kept.values()
        assert kept.due
        store.checkpoint()
        assert stream.memory.used <= 0.75 * 300_000
        with stream.reading() as log:
            assert log.warm < number * 200
        assert stream.append(batch(number * 200, 200)).accepted == 200
        assert stream.kept == (number + 1) * 200


def test_past_the_memory_of_a_store_a_batch_is_refused(tmp_path, monkeypatch):
    small_chunks(monkeypatch, 64)
    with opened(tmp_path, replace(SMALL, memory_bytes=200_000)) as store:
        stream = store.create_stream("s", TYPES, "ts")
        stream.create_summary("s_k", "k", granularity=1 << 40, options=OPTIONS)  # nothing leaves G_1
        with pytest.raises(CeilingReached, match="memory_bytes allows; older tuples are on their way to disk"):
            for number in range(100):
                stream.append(batch(number * 300, 300))
        count = stream.kept
    with opened(tmp_path, replace(SMALL, memory_bytes=1 << 30)) as store:
        assert store.streams["s"].kept == count
        assert store.streams["s"].append(batch(1 << 20, 300)).accepted == 300


@pytest.mark.parametrize("value", [-1, 1.5])
def test_memory_is_a_number_of_bytes(value):
    with pytest.raises(BadOptions, match="memory_bytes must be a whole number"):
        StoreOptions(memory_bytes=value)
