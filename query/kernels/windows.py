"""Tuples of a window in the order of their coming, chained by the code of their key.

A tuple has a position, which counts those that came before it. Its record is at the position modulo the number of
records, a power of 2: its ID, when it is dated (TS), its END, and a LINK, which has how far before it the one with its
code is that came last (0: none) in the high half, and how many results end with it in the low half. `heads[code]` has
the position of the last one with a code, -1 if there was none, and how many of them are held. What is before START is
gone, so a chain ends there; whoever goes along a chain passes over what has ended. So nothing is ever unlinked, tuples
come and end one record after the other, and a partner is one record.
"""

from promising.summaries.kernels.jit import kernel

ID = 0
TS = 1
END = 2
LINK = 3
FIELDS = 4

HALF = 32
NOTES = (1 << HALF) - 1

START = 0
"""Of `meta`: the first position that is held."""
STOP = 1
"""The next position."""
LATEST = 2
"""No end was later."""
ORDERED = 3
"""1: of those that live, none ends before one that came earlier."""
METAS = 4

WINDOW = "int64[:,::1], int32[::1], int64[:,::1], int64[::1]"
"""records, codes, heads, meta."""


@kernel(f"void(int64[:,::1], int64[::1], int64[::1], int32[::1], {WINDOW})")
def append(ids, ts, exp, new, records, codes, heads, meta):
    """Take in tuples with their codes; there is room for them."""
    mask = records.shape[0] - 1
    for i in range(new.size):
        position = meta[STOP] + i
        at = position & mask
        before = heads[new[i], 0]
        records[at, ID] = ids[i, 0]
        records[at, TS] = ts[i]
        records[at, END] = exp[i]
        records[at, LINK] = (position - before) << HALF if before >= meta[START] else 0
        codes[at] = new[i]
        heads[new[i], 0] = position
        heads[new[i], 1] += 1
        if exp[i] < meta[LATEST]:
            meta[ORDERED] = 0
        else:
            meta[LATEST] = exp[i]
    meta[STOP] += new.size


@kernel(f"int64(int64, {WINDOW}, int64[::1])")
def expire(now, records, codes, heads, meta, ends):
    """Let go of what ends at `now` or before; `ends` gets when results ended with it, returns how many.

    One that ends before another that came earlier stays where it is, but has no results any more.
    """
    mask = records.shape[0] - 1
    made = 0
    position = meta[START]
    while position < meta[STOP] and records[position & mask, END] <= now:
        at = position & mask
        heads[codes[at], 1] -= 1
        if records[at, LINK] & NOTES:
            ends[made] = records[at, END]
            made += 1
        position += 1
    meta[START] = position
    if meta[ORDERED] == 0:
        meta[ORDERED] = 1
        latest = now
        while position < meta[STOP]:
            at = position & mask
            if records[at, END] > now:
                if records[at, END] < latest:
                    meta[ORDERED] = 0
                latest = max(latest, records[at, END])
            elif records[at, LINK] & NOTES:
                ends[made] = records[at, END]
                made += 1
                records[at, LINK] &= ~NOTES
            position += 1
    return made


@kernel("int64(int32[::1], int64[:,::1])")
def count(new, heads):
    """How many results tuples of the other side with these codes have at most."""
    total = 0
    for i in range(new.size):
        total += heads[new[i], 1]
    return total


@kernel(
    "int64(int32[::1], int64, int64, int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64,"
    " int64[:,::1], int64[::1], int64[::1], int32[:,::1])"
)
def probe(new, now, side, records, mine, others, heads, theirs, made, ids, ts, exp, places):
    """The results of the last tuples of a window, whose codes are `new`, with those of the other; they are put after
    the first `made`, and there are so many then.

    `side` is the column of the one window's ids, `mine` and `theirs` are the `meta` of both. Where there is room in
    `places` it gets where the records are; otherwise the result is noted with the tuple that it ends with.
    """
    mask, other_mask = records.shape[0] - 1, others.shape[0] - 1
    kept = places.size > 0
    first = mine[STOP] - new.size
    for i in range(new.size):
        me = (first + i) & mask
        number, came, end = records[me, ID], records[me, TS], records[me, END]
        notes = 0
        position = heads[new[i], 0]
        while position >= theirs[START]:
            at = position & other_mask
            then, link = others[at, END], others[at, LINK]
            if then > now:
                ids[made, side] = number
                ids[made, 1 - side] = others[at, ID]
                ts[made] = max(came, others[at, TS])
                exp[made] = min(end, then)
                if kept:
                    places[side, made] = me
                    places[1 - side, made] = at
                elif end < then:
                    notes += 1
                else:
                    others[at, LINK] += 1
                made += 1
            if link >> HALF == 0:
                break
            position -= link >> HALF
        records[me, LINK] += notes
    return made


@kernel("void(int32[:,::1], int64[:,::1], int64[:,::1])")
def note(places, left, right):
    """Results are noted with the one of both tuples that they end with."""
    for i in range(places.shape[1]):
        a, b = places[0, i], places[1, i]
        if left[a, END] < right[b, END]:
            left[a, LINK] += 1
        else:
            right[b, LINK] += 1
