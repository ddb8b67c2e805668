"""Entries of standing queries: chained by code, ordered by end in a calendar, indexed by ids.

An entry has a place, a row of `links`: NEXT and PREV in the chain of its code, LATER and EARLIER in its calendar slot,
its CODE (-1: the place is free, and NEXT is the next free one) and a NOTE of its owner. `times` holds its timestamp and
end. `heads[code]` is the first of a chain and its length. `index` is an open-addressing table of places plus one, 0 if
free; an empty one is not used.
"""

import numpy as np

from promising.summaries.kernels.hashing import remix
from promising.summaries.kernels.jit import kernel

NEXT = 0
PREV = 1
LATER = 2
EARLIER = 3
CODE = 4
NOTE = 5
FIELDS = 6

NO_SLOT = -2  # EARLIER of an entry without an end, which is in no slot

FREE = 0  # offset in `meta`: the first free place below TOP, -1 if none
COUNT = 1  # number of entries
TOP = 2  # places used so far
SLOT = 3  # no entry ends in an earlier slot
SHIFT = 4  # a slot spans 2^SHIFT microseconds
ENDLESS = 5  # an end from here on is no end
METAS = 6

START = np.uint64(0x9E3779B97F4A7C15)

LINKS = "int32[:,::1]"
IDS = "int64[:,::1]"
STATE = "int64[:,::1], int64[:,::1], int32[:,::1], int32[:,::1], int32[::1], int32[::1], int64[::1]"
"""ids, times, links, heads, slots, index, meta."""


@kernel("int64(int64[:,::1], int64, int64)")
def seat_of(ids, row, mask):
    """Where probing for a row of ids starts."""
    h = START
    for c in range(ids.shape[1]):
        h = remix(h ^ np.uint64(ids[row, c]))
    return np.int64(h & np.uint64(mask))


@kernel("boolean(int64[:,::1], int64, int64[:,::1], int64)")
def same(a, i, b, j):
    for c in range(a.shape[1]):
        if a[i, c] != b[j, c]:
            return False
    return True


@kernel(f"void({STATE}, int64)")
def link(ids, times, links, heads, slots, index, meta, place):
    """Insert an entry, whose place, code and times are set, into its chain, slot and the index."""
    code = links[place, CODE]
    first = heads[code, 0]
    links[place, NEXT] = first
    links[place, PREV] = -1
    if first >= 0:
        links[first, PREV] = place
    heads[code, 0] = place
    heads[code, 1] += 1
    if times[place, 1] >= meta[ENDLESS]:
        links[place, LATER] = -1
        links[place, EARLIER] = NO_SLOT
    else:
        number = times[place, 1] >> meta[SHIFT]
        slot = number & (slots.size - 1)
        if number < meta[SLOT]:
            meta[SLOT] = number
        first = slots[slot]
        links[place, LATER] = first
        links[place, EARLIER] = -1
        if first >= 0:
            links[first, EARLIER] = place
        slots[slot] = place
    if index.size:
        mask = index.size - 1
        at = seat_of(ids, place, mask)
        while index[at] != 0:
            at = (at + 1) & mask
        index[at] = place + 1


@kernel(f"void({STATE}, int64)")
def unlink(ids, times, links, heads, slots, index, meta, place):
    """Remove an entry. It can be read until its place is reused."""
    code = links[place, CODE]
    after, before = links[place, NEXT], links[place, PREV]
    if before >= 0:
        links[before, NEXT] = after
    else:
        heads[code, 0] = after
    if after >= 0:
        links[after, PREV] = before
    heads[code, 1] -= 1
    after, before = links[place, LATER], links[place, EARLIER]
    if before != NO_SLOT:
        if before >= 0:
            links[before, LATER] = after
        else:
            slots[(times[place, 1] >> meta[SHIFT]) & (slots.size - 1)] = after
        if after >= 0:
            links[after, EARLIER] = before
    if index.size:
        mask = index.size - 1
        at = seat_of(ids, place, mask)
        while index[at] != place + 1:
            at = (at + 1) & mask
        hole = at
        while True:  # entries displaced past the hole move back
            at = (at + 1) & mask
            if index[at] == 0:
                break
            home = seat_of(ids, index[at] - 1, mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                index[hole] = index[at]
                hole = at
        index[hole] = 0
    links[place, NEXT] = np.int32(meta[FREE])
    links[place, CODE] = -1 - code
    meta[FREE] = place
    meta[COUNT] -= 1


@kernel(f"void({STATE}, int64[:,::1], int64[::1], int64[::1], int32[::1], int32[::1])")
def insert(ids, times, links, heads, slots, index, meta, rows, ts, exp, codes, places):
    """Insert entries, for which there must be room; `places` receives their places."""
    for i in range(codes.size):
        if meta[FREE] >= 0:
            place = meta[FREE]
            meta[FREE] = links[place, NEXT]
        else:
            place = meta[TOP]
            meta[TOP] += 1
        meta[COUNT] += 1
        for c in range(rows.shape[1]):
            ids[place, c] = rows[i, c]
        times[place, 0] = ts[i]
        times[place, 1] = exp[i]
        links[place, CODE] = codes[i]
        links[place, NOTE] = 0
        link(ids, times, links, heads, slots, index, meta, place)
        places[i] = place


@kernel(f"int64({STATE}, int64, int32[::1])")
def expire(ids, times, links, heads, slots, index, meta, now, places):
    """Remove entries that end by `now`; returns how many, `places` receives their places."""
    made = 0
    last = now >> meta[SHIFT]
    first = max(meta[SLOT], last - slots.size + 1)
    for number in range(first, last + 1):
        place = slots[number & (slots.size - 1)]
        while place >= 0:
            later = links[place, LATER]
            if times[place, 1] <= now:
                unlink(ids, times, links, heads, slots, index, meta, place)
                places[made] = place
                made += 1
            place = later
    meta[SLOT] = max(meta[SLOT], last)
    return made


@kernel("int64(int64[:,::1], int32[::1], int64[:,::1], int32[::1])")
def find(ids, index, rows, places):
    """The place of each row, -1 if absent; returns how many are present."""
    mask = index.size - 1
    found = 0
    for i in range(rows.shape[0]):
        at = seat_of(rows, i, mask)
        places[i] = -1
        while index[at] != 0:
            if same(rows, i, ids, index[at] - 1):
                places[i] = index[at] - 1
                found += 1
                break
            at = (at + 1) & mask
    return found


@kernel(f"void({STATE}, int32[::1])")
def remove(ids, times, links, heads, slots, index, meta, places):
    """Remove the entries at these distinct places."""
    for i in range(places.size):
        unlink(ids, times, links, heads, slots, index, meta, places[i])


@kernel("void(int64[:,::1], int32[:,::1], int64, int32[::1])")
def reseat(ids, links, top, index):
    """Fill an empty index with all entries."""
    mask = index.size - 1
    for place in range(top):
        if links[place, CODE] >= 0:
            at = seat_of(ids, place, mask)
            while index[at] != 0:
                at = (at + 1) & mask
            index[at] = place + 1


@kernel("void(int32[:,::1], int64, int32[::1])")
def recode(links, top, codes):
    """Renumber the code of every entry."""
    for place in range(top):
        if links[place, CODE] >= 0:
            links[place, CODE] = codes[links[place, CODE]]


@kernel("int64(int32[::1], int32[:,::1], int32[:,::1], int32[::1], int32[::1])")
def members(codes, heads, links, which, places):
    """All entries of these codes: `which` receives the position in `codes`, `places` the place."""
    made = 0
    for i in range(codes.size):
        place = heads[codes[i], 0]
        while place >= 0:
            which[made] = i
            places[made] = place
            made += 1
            place = links[place, NEXT]
    return made


@kernel("int64(int32[::1], int32[:,::1])")
def members_of(codes, heads):
    """The number of entries of these codes, repeated codes counted repeatedly."""
    total = 0
    for i in range(codes.size):
        total += heads[codes[i], 1]
    return total


@kernel("int64(int32[::1], uint8[::1], int32[::1])")
def different(codes, marks, out):
    """The distinct codes in order of appearance; `marks` is all 0 before and after. Returns how many."""
    made = 0
    for i in range(codes.size):
        if marks[codes[i]] == 0:
            marks[codes[i]] = 1
            out[made] = codes[i]
            made += 1
    for i in range(made):
        marks[out[i]] = 0
    return made
