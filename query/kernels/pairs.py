"""Pairs of rows from lists of rows."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1], int32[::1])"
)
def cross(starts_a, counts_a, starts_b, counts_b, rows_a, rows_b, place, out_a, out_b):
    """The next pairs of each entry's rows, as many as fit, from place = (entry, row a, row b); returns how many."""
    entry, i, j = place[0], place[1], place[2]
    made = 0
    room = out_a.size
    while entry < counts_a.size:
        n, m = counts_a[entry], counts_b[entry]
        start = starts_b[entry]
        while i < n and m > 0:
            row = rows_a[starts_a[entry] + i]
            take = min(m - j, room - made)
            for k in range(take):
                out_a[made + k] = row
                out_b[made + k] = rows_b[start + j + k]
            made += take
            j += take
            if j < m:  # no room left
                place[0], place[1], place[2] = entry, i, j
                return made
            j = 0
            i += 1
        i = 0
        entry += 1
    place[0], place[1], place[2] = entry, 0, 0
    return made


@kernel("int64(int64[::1], int32[::1], int64[::1])")
def group(hashes, which, unique):
    """Number equal hashes in order of first appearance: `which` by hash, `unique` by number; returns how many."""
    lines = 64
    while lines < 2 * hashes.size:
        lines *= 2
    table = np.full(lines, -1, np.int32)
    mask = lines - 1
    found = 0
    for i in range(hashes.size):
        h = hashes[i]
        at = h & mask
        while table[at] >= 0 and unique[table[at]] != h:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = found
            unique[found] = h
            found += 1
        which[i] = table[at]
    return found


@kernel("void(int32[::1], int32[::1], int64[::1], int32[::1])")
def gather(which, rows, counts, out):
    """Rows by their numbers in `which`, each number's in the order given; counts, zeros, get how many each has."""
    for i in range(which.size):
        counts[which[i]] += 1
    at = np.cumsum(counts) - counts
    for i in range(which.size):
        out[at[which[i]]] = rows[i]
        at[which[i]] += 1


@kernel("int64(int64[::1], int64[::1], int32[::1], int32[::1])")
def match(known, asked, known_at, asked_at):
    """The places of the hashes that both have, each distinct; returns how many."""
    lines = 64
    while lines < 2 * known.size:
        lines *= 2
    table = np.full(lines, -1, np.int32)
    mask = lines - 1
    for i in range(known.size):
        at = known[i] & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = i
    found = 0
    for i in range(asked.size):
        h = asked[i]
        at = h & mask
        while table[at] >= 0 and known[table[at]] != h:
            at = (at + 1) & mask
        if table[at] >= 0:
            known_at[found] = table[at]
            asked_at[found] = i
            found += 1
    return found


@kernel("int64(int32[::1], bool_[::1], int64[::1], int64[::1], int32[::1])")
def compact(rows, kept, starts, counts, out):
    """Drop rows from consecutive lists and update starts and counts. Returns how many rows are left."""
    made = 0
    for e in range(counts.size):
        first = made
        for i in range(starts[e], starts[e] + counts[e]):
            if kept[i]:
                out[made] = rows[i]
                made += 1
        starts[e] = first
        counts[e] = made - first
    return made
