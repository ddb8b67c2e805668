"""What a row group knows of its keys: counts by part of the hash range, and no part with a key is without an entry."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index.schema import Column
from promising.index.storage.cold import Cold
from promising.index.storage.disk import Disk
from promising.index.storage.key_counts import LEAST_LG, LG_PARTS, PER_ENTRY, KeyCounts, count_keys
from promising.query.kernels.regions import add, meet, occupy, outputs
from promising.summaries.hashing import hash_keys
from tests.tiers import examples

PARTS = 1 << LG_PARTS


def made(keys: list[np.ndarray]) -> tuple[KeyCounts, list[np.ndarray]]:
    hashes = [hash_keys(np.asarray(k, np.int64), 7).view(np.int64) for k in keys]
    starts = np.concatenate(([0], np.cumsum([len(k) for k in keys])[:-1])).tolist()
    return count_keys(np.concatenate(hashes), starts), hashes


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5), st.integers(0, 1 << 20), st.integers(1, 5000))
def test_every_key_has_an_entry_and_every_tuple_is_counted(sizes: list[int], seed: int, keys: int):
    rng = np.random.default_rng(seed)
    counts, hashes = made([rng.integers(0, keys, size) for size in sizes])
    counts = KeyCounts.unpacked(counts.packed(), len(sizes))
    for group, mine in enumerate(hashes):
        first, last = counts.starts[group : group + 2]
        lg = int(counts.lg[group])
        assert LEAST_LG <= lg <= LG_PARTS and 0 < last - first <= max(len(mine) // PER_ENTRY, 1 << LEAST_LG)
        parts, found = np.unique(mine.view(np.uint64) >> np.uint64(64 - lg), return_counts=True)
        assert counts.parts[first:last].tolist() == parts.tolist()
        assert counts.tuples[first:last].tolist() == found.tolist()


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 20), st.integers(1, 2000), st.integers(1, 3000))
def test_groups_that_share_a_key_meet(seed: int, keys: int, size: int):
    rng = np.random.default_rng(seed)
    mine, _ = made([rng.integers(0, 2 * keys, size) for _ in range(3)])
    drawn = [rng.integers(keys, 3 * keys, rng.integers(1, 40)) for _ in range(2)]
    other, _ = made(drawn)
    marks = np.zeros(PARTS, np.bool_)
    occupy(mine.starts, mine.lg, mine.parts, LG_PARTS, marks)
    met = np.zeros(2, np.bool_)
    meet(other.starts, other.lg, other.parts, marks, LG_PARTS, met)
    occupied = {int(part) for part in np.flatnonzero(marks)}
    for group, keys_ in enumerate(drawn):
        finest = hash_keys(keys_, 7).view(np.uint64) >> np.uint64(64 - LG_PARTS)
        if occupied & {int(part) for part in finest}:
            assert met[group]


def test_the_expected_pairs_are_about_the_pairs():
    rng = np.random.default_rng(3)
    a, b = ([np.minimum(rng.zipf(1.3, 4000), 3000) for _ in range(4)] for _ in range(2))
    (mine, _), (theirs, _) = made(a), made(b)
    sums = np.zeros((LG_PARTS - LEAST_LG + 1, PARTS))
    add(theirs.starts, theirs.lg, theirs.parts, theirs.tuples, np.arange(4), 1.0, LEAST_LG, sums)
    assert sums.sum() == pytest.approx(16_000)
    out = np.zeros(4)
    totals = np.full(4, 4000.0)
    outputs(mine.starts, mine.lg, mine.parts, mine.tuples, np.ones(4, np.bool_), sums, LEAST_LG, totals, out)
    exact = np.bincount(np.concatenate(b), minlength=3001)
    for group, keys in enumerate(a):
        assert out[group] == pytest.approx(exact[keys].sum(), rel=0.05)


def test_a_file_says_of_which_key_its_counts_are(tmp_path: Path):
    rng = np.random.default_rng(1)
    keys, n = rng.integers(0, 300, 5000), 5000
    columns = {"k": Column(keys, None, None), "v": Column(rng.random(n), None, None)}
    hashes = hash_keys(keys, 7).view(np.int64)
    cold = Cold(Disk(), tmp_path)
    zeros = np.zeros(n, np.int64)
    for run, known in ((1, hashes), (2, None)):
        cold.write(run, {"k": "int", "v": "float"}, columns, zeros, zeros, "k", known)
    _, footer = cold.file(1)
    counts = footer.counts()
    assert footer.key == "k" and counts is not None
    for group in range(len(footer.rows)):
        first, last = counts.starts[group : group + 2]
        assert counts.tuples[first:last].sum() == footer.rows[group]
    assert cold.file(2)[1].key is None and cold.file(2)[1].counts() is None


def test_bytes_in_the_cache_are_not_read_again(tmp_path: Path):
    n = 5000
    columns = {"k": Column(np.arange(n), None, None), "v": Column(np.arange(n), None, None)}
    cold = Cold(Disk(), tmp_path)
    cold.write(1, {"k": "int", "v": "int"}, columns, np.arange(n) // 2500, np.zeros(n, np.int64), "k")
    before, other = cold.unread(1, ["k"]), cold.unread(1, ["k", "v"])
    assert len(before) == 2 and (before > 0).all() and (other > before).all()
    read = cold.bytes_read
    cold.column(1, "k", np.arange(10, dtype=np.int32))
    assert cold.unread(1, ["k"]).tolist() == [0, before[1]]
    assert cold.bytes_read - read == before[0]
    assert cold.unread(1, ["k", "v"]).tolist() == [other[0] - before[0], other[1]]
