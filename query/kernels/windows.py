"""Tuples of a window in order of arrival, chained by the code of their key.

The position of a tuple is the number of earlier ones. Its record is at the position modulo the number of records, a
power of 2: ID, timestamp (TS), END, and LINK, whose high half is the distance to the previous tuple of its code (0:
none) and whose low half is the number of results that end with it. `heads[code]` is the position of the latest tuple of
a code, -1 if none, and how many are stored. Positions before START are released, so chains end there; readers of a
chain skip ended tuples. Hence nothing is ever unlinked, tuples arrive and end in sequence, and a partner is one record.
"""

from promising.summaries.kernels.jit import kernel

ID = 0
TS = 1
END = 2
LINK = 3
FIELDS = 4

HALF = 32
NOTES = (1 << HALF) - 1

START = 0  # offset in `meta`: the first stored position
STOP = 1  # the next position
LATEST = 2  # the latest end so far
ORDERED = 3  # 1 if no live tuple ends before one that arrived earlier
METAS = 4

WINDOW = "int64[:,::1], int32[::1], int64[:,::1], int64[::1]"  # records, codes, heads, meta


@kernel(f"void(int64[:,::1], int64[::1], int64[::1], int32[::1], {WINDOW})")
def append(ids, ts, exp, new, records, codes, heads, meta):
    """Append tuples with their codes; there must be room."""
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
    """Release tuples that end by `now`; `ends` receives when results ended with them. Returns how many.

    A tuple that ends before an earlier one stays, but has no results any more.
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
    """Upper bound of the results of the other side's tuples with these codes."""
    total = 0
    for i in range(new.size):
        total += heads[new[i], 1]
    return total


@kernel(
    "int64(int32[::1], int64, int64, int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64,"
    " int64[:,::1], int64[::1], int64[::1], int32[:,::1])"
)
def probe(new, now, side, records, mine, others, heads, theirs, made, ids, ts, exp, places):
    """Join the last tuples of a window, of codes `new`, with the other; appends after `made`, returns the new count.

    `side` is the column of this window's ids, `mine` and `theirs` are the `meta` of both. `places`, if not empty,
    receives where the records are; otherwise results are noted at the tuple that they end with.
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
    """Note results at the one of both tuples that they end with."""
    for i in range(places.shape[1]):
        a, b = places[0, i], places[1, i]
        if left[a, END] < right[b, END]:
            left[a, LINK] += 1
        else:
            right[b, LINK] += 1
