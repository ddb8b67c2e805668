"""The kernels for lists of rows against plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.query.kernels import pairs as kernels

pytestmark = pytest.mark.kernel

sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


def lists(counts, first):
    """Lists of these lengths, not in order in memory and with gaps, and what is in each."""
    rows = np.full(2 * sum(counts) + len(counts), -1, np.int32)
    starts, inside = np.zeros(len(counts), np.int64), []
    at = 0
    for i in reversed(range(len(counts))):
        starts[i] = at
        rows[at : at + counts[i]] = np.arange(first, first + counts[i])
        inside.append(list(range(first, first + counts[i])))
        first += counts[i]
        at += counts[i] + 1
    return rows, starts, np.array(counts, np.int64), inside[::-1]


@given(sizes, st.lists(st.integers(0, 7), min_size=1, max_size=5))
def test_every_pair_comes_once_whatever_room_there_is(counts, rooms):
    rows_a, starts_a, counts_a, inside_a = lists([a for a, _ in counts], 0)
    rows_b, starts_b, counts_b, inside_b = lists([b for _, b in counts], 1000)
    expected = [(a, b) for mine, theirs in zip(inside_a, inside_b, strict=True) for a in mine for b in theirs]
    place = np.zeros(3, np.int64)
    found: list[tuple[int, int]] = []
    for turn in range(200):
        room = rooms[turn % len(rooms)] if turn < 20 else 30
        out_a, out_b = np.full(room, -7, np.int32), np.full(room, -7, np.int32)
        made = kernels.cross(starts_a, counts_a, starts_b, counts_b, rows_a, rows_b, place, out_a, out_b)
        assert made == min(room, len(expected) - len(found))
        assert (out_a[made:] == -7).all() and (out_b[made:] == -7).all()
        found += zip(out_a[:made].tolist(), out_b[:made].tolist(), strict=True)
        done = [len(a) * len(b) for a, b in zip(inside_a[: place[0]], inside_b[: place[0]], strict=True)]
        if place[0] < len(counts):
            done.append(int(place[1]) * len(inside_b[place[0]]) + int(place[2]))
        assert sum(done) == len(found), "the place says how far it is"
        if place[0] == len(counts):
            break
    assert found == expected
    assert place.tolist() == [len(counts), 0, 0]


def test_lists_may_share_rows():
    shared = np.array([5, 6], np.int32)
    starts, counts = np.array([0, 0, 1]), np.array([2, 1, 1])
    place, a, b = np.zeros(3, np.int64), np.empty(6, np.int32), np.empty(6, np.int32)
    assert kernels.cross(starts, counts, starts, counts, shared, shared, place, a, b) == 6
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == [(5, 5), (5, 6), (6, 5), (6, 6), (5, 5), (6, 6)]


# Hashes whose low bits are alike want the same line of the table; the ends of the range are negative and positive.
hashes = st.lists(
    st.one_of(
        st.sampled_from([0, -1, 1, (1 << 63) - 1, -(1 << 63)]),
        st.integers(-9, 9).map(lambda i: (i << 20) + 63),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    max_size=80,
)


@given(hashes)
def test_equal_hashes_get_one_number_in_order_of_appearance(given_hashes):
    n = len(given_hashes)
    which, unique = np.full(n, -1, np.int32), np.zeros(n, np.int64)
    found = kernels.group(np.array(given_hashes, np.int64), which, unique)
    expected = list(dict.fromkeys(given_hashes))
    assert unique[:found].tolist() == expected
    assert which.tolist() == [expected.index(h) for h in given_hashes]


@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=10))
def test_rows_dropped_from_lists_leave_no_gap(lists_of_kept):
    flat = [k for part in lists_of_kept for k in part]
    rows = np.arange(100, 100 + len(flat), dtype=np.int32)
    counts = np.array([len(part) for part in lists_of_kept], np.int64)
    starts = np.cumsum(counts) - counts
    expected = [
        [int(row) for row, kept in zip(rows[s : s + n], part, strict=True) if kept]
        for s, n, part in zip(starts, counts, lists_of_kept, strict=True)
    ]
    out = np.full(len(flat), -1, np.int32)
    left = kernels.compact(rows, np.array(flat, np.bool_), starts, counts, out)
    assert left == sum(flat) == counts.sum()
    assert [out[s : s + n].tolist() for s, n in zip(starts, counts, strict=True)] == expected
    assert out[:left].tolist() == [row for part in expected for row in part]
    assert (out[left:] == -1).all()


def test_lists_may_be_compacted_in_place():
    rows = np.arange(6, dtype=np.int32)
    starts, counts = np.array([0, 2, 5]), np.array([2, 3, 1])
    assert kernels.compact(rows, np.array([0, 1, 1, 0, 1, 0], np.bool_), starts, counts, rows) == 3
    assert rows[:3].tolist() == [1, 2, 4]
    assert (starts.tolist(), counts.tolist()) == ([0, 1, 3], [1, 2, 0])
