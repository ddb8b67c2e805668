"""Exact postings: for every key, the chain of log rows that hold it.

`entries` is an open-addressed directory of 32-byte lines, seen as int64[n, 4] and int32[n, 8]:

    word 0     the key's hash
    int32 2    number of rows; 0 marks an empty line
    int32 3    the newest row
    int32 4    the last open zone with the key
    int32 5    the key's index among that zone's keys

`tags` has a byte per line, 0 if it is empty, else bits of the hash: it rules out most absent keys in the L1 cache,
without reading a line.

`older[row]` is the next older row of the same key. Rows are released in order of arrival, so a chain is never edited:
the count decreases, and a walk takes that many steps. A walk is a sequence of dependent loads; `walk` has `LANES` of
them in flight, which hides their latency. A line is also the group of its key in the open zone, whose summary is built
from its keys and their sizes.
"""

import numpy as np

from promising.summaries.kernels.jit import kernel

AHEAD = 128  # lines fetched together: independent loads hide each other's latency
LANES = 32

# heads[...]: directory lines in use; keys of the open zone; a sink that keeps the prefetching loads from being
# optimised away; the maximum rows of any key so far
USED, KEYS, FETCHED, MOST = range(4)


@kernel("int64(int64[:,::1], int32[:,::1], int64)", inline="always")
def locate(entries, small, h):
    """The line of `h`, or the empty one where it would be inserted."""
    mask = entries.shape[0] - 1
    at = h & mask
    while small[at, 2] != 0 and entries[at, 0] != h:
        at = (at + 1) & mask
    return at


@kernel("uint8(int64)")
def tag_of(h):
    """Hash bits that do not choose the line, never 0."""
    return np.uint8(((h >> 48) & 255) | 1)


@kernel(
    "int64(int64[:,::1], int32[:,::1], uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1], int64[::1],"
    " int32[::1], int64, int64, int32)"
)
def enter(entries, small, tags, older, heads, keys, sizes, hashes, rows, start, stop, zone):
    """Add tuples `start..stop` to their keys and open `zone` (if >= 0); returns the end, early if half full."""
    mask = np.uint64(entries.shape[0] - 1)
    room = entries.shape[0] >> 1
    used = heads[USED]
    found = heads[KEYS]
    most = np.int32(heads[MOST])
    fetched = np.int32(0)
    i = start
    while i < stop and used + AHEAD <= room:
        last = min(i + AHEAD, stop)
        for k in range(i, last):
            fetched ^= small[np.uint64(hashes[k]) & mask, 2]
        while i < last:
            h = hashes[i]
            at = np.uint64(h) & mask
            while small[at, 2] != 0 and entries[at, 0] != h:
                at = (at + np.uint64(1)) & mask
            count = small[at, 2]
            if count == 0:
                entries[at, 0] = h
                tags[at] = tag_of(h)
                small[at, 3] = -1
                small[at, 4] = -1
                used += 1
                if used + AHEAD > room:
                    last = i + 1  # grow before the next tuple, however the tuples are split
            if zone >= 0:
                if small[at, 4] != zone:
                    small[at, 4] = zone
                    small[at, 5] = found
                    keys[found] = h
                    sizes[found] = 0
                    found += 1
                sizes[np.uint64(small[at, 5])] += 1
            row = rows[i]
            older[np.uint64(row)] = small[at, 3]
            small[at, 3] = row
            small[at, 2] = count + 1
            most = max(most, count + np.int32(1))
            i += 1
    heads[MOST] = most
    heads[USED] = used
    heads[KEYS] = found
    heads[FETCHED] = fetched
    return i


@kernel("void(int64[:,::1], int32[:,::1], int64[::1], int64, int32[::1])")
def take_back(entries, small, hashes, count, sizes):
    """Subtract these newest tuples from the open zone's sizes."""
    for i in range(count):
        sizes[small[locate(entries, small, hashes[i]), 5]] -= 1


@kernel("void(int64[:,::1], int32[:,::1], int64[::1], int64[::1], int32[::1], int64[::1], int64, int32)")
def note(entries, small, heads, keys, sizes, hashes, count, zone):
    """Count tuples that were entered before as the open zone's."""
    for i in range(count):
        at = locate(entries, small, hashes[i])
        if small[at, 4] != zone:
            small[at, 4] = zone
            small[at, 5] = heads[KEYS]
            keys[heads[KEYS]] = hashes[i]
            sizes[heads[KEYS]] = 0
            heads[KEYS] += 1
        sizes[small[at, 5]] += 1


@kernel("void(int64[:,::1], int32[:,::1], int32[::1], int64[::1], int32, int64[::1])")
def open_sizes(entries, small, sizes, hashes, zone, out):
    """The number of tuples of each key in the open zone."""
    for i in range(hashes.size):
        at = locate(entries, small, hashes[i])
        out[i] = sizes[small[at, 5]] if small[at, 2] != 0 and small[at, 4] == zone else 0


@kernel("void(int64[:,::1], int32[:,::1], int64[:,::1], int32[:,::1], uint8[::1])")
def rehash(old, old_small, new, new_small, new_tags):
    """Copy every line to a directory of another size."""
    for i in range(old.shape[0]):
        if old_small[i, 2] != 0:
            at = locate(new, new_small, old[i, 0])
            new_tags[at] = tag_of(old[i, 0])
            for k in range(4):
                new[at, k] = old[i, k]


@kernel("void(int64[:,::1], int32[:,::1], uint8[::1], int64)", inline="always")
def vacate(entries, small, tags, at):
    """Empty a line and move back the ones displaced by it."""
    mask = entries.shape[0] - 1
    hole = at
    probe = (at + 1) & mask
    while small[probe, 2] != 0:
        home = entries[probe, 0] & mask
        if ((probe - home) & mask) >= ((probe - hole) & mask):
            for k in range(4):
                entries[hole, k] = entries[probe, k]
            tags[hole] = tags[probe]
            hole = probe
        probe = (probe + 1) & mask
    for k in range(4):
        entries[hole, k] = 0
    tags[hole] = 0


@kernel("int64(int64[:,::1], int32[:,::1], uint8[::1], int64[::1], int64[::1])")
def forget(entries, small, tags, heads, hashes):
    """Drop the oldest row of each of these keys; returns how many had none (a bug)."""
    mask = entries.shape[0] - 1
    fetched = np.int32(0)
    missing = 0
    for first in range(0, hashes.size, AHEAD):
        last = min(first + AHEAD, hashes.size)
        for i in range(first, last):
            fetched ^= small[hashes[i] & mask, 2]
        for i in range(first, last):
            at = locate(entries, small, hashes[i])
            count = small[at, 2]
            if count > 1:
                small[at, 2] = count - 1
            elif count == 1:
                vacate(entries, small, tags, at)
                heads[USED] -= 1
            else:
                missing += 1
    heads[FETCHED] = fetched
    return missing


@kernel("void(int32[:,::1], int32[::1], bool_[::1], int64, int64[::1])")
def count_gone(small, older, gone, lg_chunk, sizes):
    """The number of rows of each line in the `gone` chunks: the last ones of its chain."""
    for at in range(small.shape[0]):
        row = small[at, 3]
        left = small[at, 2]
        while left > 0 and not gone[row >> lg_chunk]:
            row = older[row]
            left -= 1
        sizes[at] = left


@kernel("int64(int64[:,::1], int32[:,::1], uint8[::1], int64[::1], int64[::1], int32[::1], int64[::1])")
def find_keys(entries, small, tags, heads, hashes, newest, counts):
    """Newest row and number of rows of each key (0 if absent); returns the total."""
    mask = np.uint64(entries.shape[0] - 1)
    lines = np.empty(AHEAD, np.uint64)
    total = np.int64(0)
    fetched = np.int32(0)
    for first in range(0, hashes.size, AHEAD):
        last = min(first + AHEAD, hashes.size)
        for i in range(first, last):
            at = np.uint64(hashes[i]) & mask
            tag = tag_of(hashes[i])
            while tags[at] != 0 and tags[at] != tag:
                at = (at + np.uint64(1)) & mask
            lines[i - first] = at
            if tags[at] != 0:
                fetched ^= small[at, 2]
        for i in range(first, last):
            at = lines[i - first]
            while tags[at] != 0 and entries[at, 0] != hashes[i]:
                at = (at + np.uint64(1)) & mask
            count = np.int64(0)
            if tags[at] != 0:
                count = np.int64(small[at, 2])
                newest[i] = small[at, 3]
            counts[i] = count
            total += count
    heads[FETCHED] = fetched
    return total


@kernel("void(int32[::1], int32[::1], int64[::1], int32[::1], int32[::1])")
def walk(older, newest, counts, probe, rows):
    """All rows of all keys: (index of the key, log row), keys in the given order, newest row first.

    All lanes take as many steps as the shortest has left, without a branch, before any gets another key.
    """
    n = counts.size
    lane_row = np.zeros(LANES, np.int32)
    lane_at = np.zeros(LANES, np.int64)
    lane_left = np.zeros(LANES, np.int64)
    key = 0
    start = np.int64(0)
    busy = 0
    while True:
        while busy < LANES and key < n:
            if counts[key] > 0:
                lane_row[busy] = newest[key]
                lane_at[busy] = start
                lane_left[busy] = counts[key]
                for at in range(start, start + counts[key]):
                    probe[at] = key
                start += counts[key]
                busy += 1
            key += 1
        if busy == 0:
            return
        steps = lane_left[0]
        for lane in range(1, busy):
            steps = min(steps, lane_left[lane])
        for step in range(steps):
            for lane in range(busy):
                row = lane_row[lane]
                rows[lane_at[lane] + step] = row
                lane_row[lane] = older[np.uint64(row)]  # not followed after the last row
        for lane in range(busy - 1, -1, -1):
            lane_at[lane] += steps
            lane_left[lane] -= steps
            if lane_left[lane] == 0:  # the last lane takes its place
                busy -= 1
                lane_row[lane] = lane_row[busy]
                lane_at[lane] = lane_at[busy]
                lane_left[lane] = lane_left[busy]


@kernel("void(int32[:,::1], uint8[::1], int64, int64, int64[::1], uint8[::1])")
def tally(small, tags, start, stop, sizes, dense):
    """Count the keys of lines start..stop by rows into `sizes` (last: more); dense[line] = rows, at most 255."""
    for at in range(start, stop):
        count = np.int64(small[at, 2]) if tags[at] != 0 else np.int64(0)
        sizes[min(count, sizes.size - 1)] += 1
        dense[at] = min(count, 255)


@kernel("int64(int64[:,::1], int32[:,::1], uint8[::1], int64, int64, int64, int64, int64[::1])")
def listed_dense(entries, small, dense, start, stop, least, most, out):
    """`listed`, for a directory unchanged since `tally` wrote `dense`: reads few lines."""
    found = 0
    for at in range(start, stop):
        count = np.int64(dense[at])
        if count >= min(least, 255):
            if count == 255:
                count = np.int64(small[at, 2])
            if least <= count <= most:
                out[found] = entries[at, 0]
                found += 1
    return found


@kernel("int64(int64[:,::1], int32[:,::1], uint8[::1], int64, int64, int64, int64, int64[::1])")
def listed(entries, small, tags, start, stop, least, most, out):
    """Hashes of the keys of lines start..stop with `least` to `most` rows; returns their number."""
    found = 0
    for at in range(start, stop):
        if tags[at] != 0 and least <= small[at, 2] <= most:
            out[found] = entries[at, 0]
            found += 1
    return found


@kernel("int32(int32[::1], int32, int32[::1])")
def follow(older, row, rows):
    """One key's rows from `row` on, as many as fit; returns the following row."""
    for i in range(rows.size):
        rows[i] = row
        row = older[np.uint64(row)]
    return row
