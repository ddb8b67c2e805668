"""`fetch` is `probe` and `take` in one, whatever is asked and however often."""

import numpy as np
import pyarrow as pa
import pytest

import promising.index.reader
from promising.index import Options, Stream
from promising.index.stream import MINUTE
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock
from tests.index.world import narrow_hashes

STRUCTURES = ("none", "time", "grid", "adaptive", "off")  # the last one without postings


def store(n: int = 6000) -> Stream:
    """Few keys, so that each has many tuples; an int and a string key, nulls, strings and booleans beside them."""
    rng = np.random.default_rng(3)
    stream = Stream(
        "s",
        {"ts": "timestamp", "item": "int", "name": "string", "price": "float", "note": "string", "open": "bool"},
        time="ts",
        clock=ManualClock(1 << 40),
    )
    for name in STRUCTURES:
        how = {"structure": name} if name != "off" else {"options": Options(postings=False)}
        stream.create_summary(name, key="item", granularity=MINUTE, collapse=(2, 3), **how)
    stream.create_summary("by_name", key="name", granularity=MINUTE, collapse=(2, 3))
    item = rng.integers(0, 40, n)
    stream.append(
        {
            "ts": np.sort(rng.integers(0, 20 * MINUTE, n)),
            "item": item,
            "name": [f"item {i}" for i in item],
            "price": pa.array(rng.random(n), mask=rng.random(n) < 0.1),
            "note": pa.array([f"note {i}" for i in range(n)], mask=rng.random(n) < 0.1),
            "open": rng.random(n) < 0.5,
        }
    )
    return stream


STORE = store()
QUESTIONS = {
    "once each": [3, 7, 1],
    "again and again": [7, 3, 7, 7, 1, 3],
    "none there": [1000, 2000],
    "some there, repeated": [1000, 5, 2000, 5, 5],
    "nothing": np.empty(0, np.int64),
    "many, once": np.arange(500),
}


@pytest.mark.parametrize("window", [None, (12 * MINUTE, 18 * MINUTE), (5, 5)])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_fetch_is_probe_and_take(structure, question, window):
    summary = STORE.summaries[structure]
    matches = summary.probe(QUESTIONS[question], window)
    probe, table = summary.fetch(QUESTIONS[question], window)
    assert probe.tolist() == matches.probe.tolist()
    assert table.equals(STORE.take(matches.rows))


def test_string_keys_are_fetched_as_well():
    keys = ["item 5", "item 9", "item 5", "nobody"]
    matches = STORE.summaries["by_name"].probe(keys)
    probe, table = STORE.summaries["by_name"].fetch(keys, columns=["name", "open"])
    assert probe.tolist() == matches.probe.tolist()
    assert table.equals(STORE.take(matches.rows, ["name", "open"]))
    assert [keys[i] for i in probe] == table.column("name").to_pylist()


def test_strings_that_share_a_hash_are_told_apart(monkeypatch):
    """With a hash of one bit nearly all keys collide; the answers are still those of the key asked for."""
    narrow_hashes(monkeypatch, 1)
    monkeypatch.setattr(promising.index.reader, "hash_checked", lambda keys, seed: hash_keys(keys, seed) & np.uint64(1))
    stream = Stream("s", {"ts": "timestamp", "name": "string"}, time="ts", clock=ManualClock(1 << 40))
    summary = stream.create_summary("s", key="name", granularity=MINUTE)
    names = [f"n{i % 7}" for i in range(300)]
    stream.append({"ts": list(range(300)), "name": names})
    asked = ["n1", "n6", "n1", "other"]
    probe, table = summary.fetch(asked)
    assert [asked[i] for i in probe] == table.column("name").to_pylist()
    assert np.bincount(probe, minlength=4).tolist() == [names.count(name) for name in asked]
