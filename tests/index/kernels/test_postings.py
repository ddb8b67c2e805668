"""The postings kernels against a dictionary of lists."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from promising.index.kernels import postings as kernels
from tests.index.kernels.plain import some_hashes

pytestmark = pytest.mark.kernel

ROOM = 1 << 12


class Directory:
    """The arrays that the kernels work on."""

    def __init__(self, lines: int = 1024) -> None:
        self.entries = np.zeros((lines, 4), np.int64)
        self.small = self.entries.view(np.int32)
        self.tags = np.zeros(lines, np.uint8)
        self.older = np.full(ROOM, -7, np.int32)
        self.heads = np.zeros(4, np.int64)
        self.keys, self.sizes = np.zeros(ROOM, np.int64), np.zeros(ROOM, np.int32)

    def enter(self, hashes, rows, zone: int, start: int = 0) -> int:
        args = (self.older, self.heads, self.keys, self.sizes, hashes, rows)
        return int(kernels.enter(self.entries, self.small, self.tags, *args, start, len(hashes), zone))

    def found(self, hashes) -> list[list[int]]:
        """Rows of each key, newest first, as `find_keys` and `walk` have them."""
        newest, counts = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int64)
        total = int(kernels.find_keys(self.entries, self.small, self.tags, self.heads, hashes, newest, counts))
        probe, rows = np.full(total, -1, np.int32), np.full(total, -1, np.int32)
        kernels.walk(self.older, newest, counts, probe, rows)
        assert probe.tolist() == np.repeat(np.arange(len(hashes)), counts).tolist()
        return [rows[probe == i].tolist() for i in range(len(hashes))]

    def zone(self) -> dict[int, int]:
        """Keys of the open zone and their sizes."""
        n = int(self.heads[kernels.KEYS])
        return dict(zip(self.keys[:n].tolist(), self.sizes[:n].tolist(), strict=True))


def tally(hashes) -> dict[int, int]:
    keys, counts = np.unique(hashes, return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


def crowded(n: int, keys: int, seed: int):
    """Hashes whose low bits, and so whose places in the directory, are few: long runs of lines that step aside."""
    hashes = some_hashes(n, keys, seed)
    return (hashes & ~np.int64(1023)) | (hashes & np.int64(3) | np.int64(1020))


def chains(hashes, rows) -> dict[int, list[int]]:
    kept: dict[int, list[int]] = defaultdict(list)
    for h, row in zip(hashes.tolist(), rows.tolist(), strict=True):
        kept[h].insert(0, row)
    return kept


@pytest.mark.parametrize("draw", [some_hashes, crowded])
def test_every_key_has_its_rows_newest_first(draw):
    directory = Directory()
    hashes = draw(600, 90, 1)
    rows = np.random.default_rng(1).permutation(ROOM)[:600].astype(np.int32)
    assert directory.enter(hashes[:250], rows[:250], -1) == 250
    assert directory.enter(hashes[250:], rows[250:], -1) == 350
    expected = chains(hashes, rows)
    asked = np.concatenate((np.array(list(expected), np.int64), draw(20, 20, 77)))
    assert directory.found(asked) == [expected.get(h, []) for h in asked.tolist()]
    assert directory.heads[kernels.USED] == len(expected)
    for h in expected:
        at = int(kernels.locate(directory.entries, directory.small, h))
        assert directory.entries[at, 0] == h and directory.small[at, 2] == len(expected[h])


def test_a_key_asked_for_twice_is_found_twice_and_one_that_is_not_there_not_at_all():
    directory = Directory()
    hashes = some_hashes(50, 5, 2)
    directory.enter(hashes, np.arange(50, dtype=np.int32), -1)
    key = hashes[:1]
    once = directory.found(key)[0]
    assert directory.found(np.concatenate((key, key ^ 1, key))) == [once, [], once]
    assert directory.found(np.empty(0, np.int64)) == []


def test_more_keys_than_lanes_of_very_different_lengths():
    directory = Directory()
    hashes = np.concatenate([np.full(1 + (i * 37) % 50, i * 1001 - 20_000) for i in range(80)])
    hashes = np.random.default_rng(3).permutation(hashes)
    rows = np.arange(len(hashes), dtype=np.int32)
    directory.enter(hashes, rows, -1)
    expected = chains(hashes, rows)
    asked = np.array(list(expected), np.int64)
    assert directory.found(asked) == [expected[h] for h in asked.tolist()]


def test_entering_stops_before_the_directory_is_too_full_and_goes_on_after_rehash():
    directory = Directory(256)
    hashes = some_hashes(500, 500, 4)
    rows = np.arange(500, dtype=np.int32)
    stop = directory.enter(hashes, rows, -1)
    assert 0 < stop < 500 and directory.heads[kernels.USED] <= 128
    larger = np.zeros((2048, 4), np.int64)
    tags = np.zeros(2048, np.uint8)
    kernels.rehash(directory.entries, directory.small, larger, larger.view(np.int32), tags)
    directory.entries, directory.small, directory.tags = larger, larger.view(np.int32), tags
    assert directory.enter(hashes, rows, -1, start=stop) == 500
    expected = chains(hashes, rows)
    assert directory.found(hashes) == [expected[h] for h in hashes.tolist()]


@pytest.mark.parametrize("draw", [some_hashes, crowded])
def test_the_open_zone_counts_its_keys(draw):
    directory = Directory()
    first, second, noted = draw(100, 40, 5), draw(120, 40, 5), draw(60, 40, 5)
    directory.enter(first, np.arange(100, dtype=np.int32), 1)
    assert directory.zone() == tally(first)
    directory.heads[kernels.KEYS] = 0  # the next zone begins
    directory.enter(second, np.arange(100, 220, dtype=np.int32), 2)
    assert directory.zone() == tally(second)
    kernels.take_back(directory.entries, directory.small, second[100:], 20, directory.sizes)
    assert {k: n for k, n in directory.zone().items() if n} == tally(second[:100])
    directory.enter(noted, np.arange(220, 280, dtype=np.int32), -1)
    assert {k: n for k, n in directory.zone().items() if n} == tally(second[:100]), "-1 is no zone"
    args = (directory.keys, directory.sizes, noted, 60, 2)
    kernels.note(directory.entries, directory.small, directory.heads, *args)
    expected = tally(np.concatenate((second[:100], noted)))
    assert {k: n for k, n in directory.zone().items() if n} == expected
    asked = np.concatenate((first, some_hashes(10, 10, 88)))
    out = np.empty(len(asked), np.int64)
    kernels.open_sizes(directory.entries, directory.small, directory.sizes, asked, 2, out)
    assert out.tolist() == [expected.get(h, 0) for h in asked.tolist()]


@pytest.mark.parametrize("draw", [some_hashes, crowded])
def test_rows_leave_in_the_order_they_came(draw):
    directory = Directory()
    hashes = draw(400, 70, 6)
    rows = np.arange(400, dtype=np.int32)
    directory.enter(hashes, rows, -1)
    for before, gone in pairwise((0, 1, 150, 333, 400)):
        assert (
            kernels.forget(directory.entries, directory.small, directory.tags, directory.heads, hashes[before:gone])
            == 0
        )
        expected = chains(hashes[gone:], rows[gone:])
        assert directory.found(np.unique(hashes)) == [expected.get(h, []) for h in np.unique(hashes).tolist()]
        assert directory.heads[kernels.USED] == len(expected)
    assert (directory.entries == 0).all()
    assert kernels.forget(directory.entries, directory.small, directory.tags, directory.heads, hashes[:3]) == 3, (
        "none is left to forget"
    )


def test_a_vacated_line_leaves_no_gap_in_a_run_that_goes_round_the_end():
    directory = Directory(16)
    homes = [14, 14, 15, 14, 0, 15, 1]
    hashes = np.array([home + 16 * (i + 1) for i, home in enumerate(homes)], np.int64)
    for i, h in enumerate(hashes.tolist()):
        at = int(kernels.locate(directory.entries, directory.small, h))
        directory.entries[at, 0] = h
        directory.small[at, 2:4] = (1, i)
    left = list(enumerate(hashes.tolist()))
    while left:
        _, h = left.pop(len(left) // 2)
        at = int(kernels.locate(directory.entries, directory.small, h))
        kernels.vacate(directory.entries, directory.small, directory.tags, at)
        for row, other in left:
            at = int(kernels.locate(directory.entries, directory.small, other))
            assert directory.entries[at, 0] == other and directory.small[at, 3] == row
    assert (directory.entries == 0).all()
