"""Results of a standing query in places of arrays: a calendar by end, an index by ids.

A free place has `FREE` as its end and birth, and `after` is the next free one. Any other is in a list, doubly linked by
`after` and `before`: -1 is after the last, and before the first is the complement of the list's number in `heads`. A
calendar has a list per slot of time, an index one per hash bucket. `touched` counts the entries examined.
"""

import numpy as np

from promising.summaries.kernels.hashing import remix
from promising.summaries.kernels.jit import kernel

FREE = -(1 << 63)
SEED = np.uint64(0x9E3779B97F4A7C15)  # ids count arrivals, so nobody can choose them: the hash need not be secret


# --- places ------------------------------------------------------------------------------------------------------


@kernel("int64(int64[:,::1], int64[::1], int64, int64, int64[:,::1], int64[::1], int64[::1], int32[::1], int32[::1])")
def settle(new_ids, new_exp, new_born, free, ids, exp, born, after, places):
    """Store rows in free places, which it reports; returns the first place still free."""
    for i in range(places.size):
        p = free
        free = after[p]
        for w in range(ids.shape[1]):
            ids[p, w] = new_ids[i, w]
        exp[p] = new_exp[i]
        born[p] = new_born
        places[i] = p
    return free


@kernel("int64(int32[::1], int64, int64[::1], int64[::1], int32[::1])")
def release(places, free, exp, born, after):
    """Free the places; returns the first free one."""
    for i in range(places.size):
        p = places[i]
        exp[p] = born[p] = FREE
        after[p] = free
        free = p
    return free


# --- lists -------------------------------------------------------------------------------------------------------


@kernel("void(int64, int64, int32[::1], int32[::1], int32[::1])", inline="always")
def link(p, number, heads, after, before):
    first = heads[number]
    after[p] = first
    before[p] = ~number
    if first >= 0:
        before[first] = p
    heads[number] = p


@kernel("void(int64, int32[::1], int32[::1], int32[::1])", inline="always")
def unlink(p, heads, after, before):
    a = after[p]
    b = before[p]
    if b >= 0:
        after[b] = a
    else:
        heads[~b] = a
    if a >= 0:
        before[a] = b


@kernel("void(int32[::1], int32[::1], int32[::1], int32[::1])")
def unlink_all(places, heads, after, before):
    for i in range(places.size):
        unlink(places[i], heads, after, before)


# --- calendar ----------------------------------------------------------------------------------------------------


@kernel("void(int32[::1], int64[::1], int64, int64, int64, int32[::1], int32[::1], int32[::1])")
def shelve(places, exp, width, swept, never, heads, after, before):
    """Insert places into the slots of their ends, or into slot `swept` if they end earlier; the last is for `never`."""
    slots = heads.size - 1
    for i in range(places.size):
        p = places[i]
        slot = slots
        if exp[p] < never:
            slot = max(exp[p] // width, swept) % slots
        link(p, slot, heads, after, before)


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def sweep(now, first, number, exp, heads, after, before, dead):
    """Unlink results that have ended, in `number` slots from `first`: how many were touched, and are `dead`."""
    slots = heads.size - 1
    touched = 0
    died = 0
    for s in range(first, first + number):
        p = heads[s % slots]
        while p >= 0:
            then = after[p]
            touched += 1
            if exp[p] <= now:
                unlink(p, heads, after, before)
                dead[died] = p
                died += 1
            p = then
    return touched, died


# --- index -------------------------------------------------------------------------------------------------------


@kernel("int64(int64[:,::1], int64, int64)", inline="always")
def bucket_of(ids, i, buckets):
    h = SEED
    for w in range(ids.shape[1]):
        h = remix(h ^ np.uint64(ids[i, w]))
    return np.int64(h & np.uint64(buckets - 1))


@kernel("boolean(int64[:,::1], int64, int64[:,::1], int64)", inline="always")
def same(a, i, b, j):
    for w in range(a.shape[1]):
        if a[i, w] != b[j, w]:
            return False
    return True


@kernel("void(int32[::1], int64[:,::1], int32[::1], int32[::1], int32[::1])")
def seat(places, ids, heads, after, before):
    """Insert places into the buckets of their ids."""
    for i in range(places.size):
        p = places[i]
        link(p, bucket_of(ids, p, heads.size), heads, after, before)


@kernel("int64(int64[:,::1], int64[:,::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def unseat(wanted, ids, heads, after, before, places):
    """Remove the places with these ids from their buckets, -1 if absent; returns how many were touched."""
    touched = 0
    for i in range(places.size):
        p = heads[bucket_of(wanted, i, heads.size)]
        while p >= 0:
            touched += 1
            if same(wanted, i, ids, p):
                unlink(p, heads, after, before)
                break
            p = after[p]
        places[i] = p
    return touched


# --- no index ----------------------------------------------------------------------------------------------------


@kernel("int64(int64[:,::1], int32[::1], int32[::1], int32[::1], int64[:,::1], int64[::1], int64, int64, int32[::1])")
def look_for(wanted, heads, after, before, ids, exp, start, stop, places):
    """Scan from `start` to `stop` for places with these ids, -1 if absent, until all are found; how many were touched.

    The wanted rows are in buckets of their own, and are removed from them when found.
    """
    for i in range(places.size):
        places[i] = -1
    touched = 0
    found = 0
    for p in range(start, stop):
        if found == places.size:
            break
        if exp[p] == FREE:
            continue
        touched += 1
        i = heads[bucket_of(ids, p, heads.size)]
        while i >= 0:
            if same(wanted, i, ids, p):
                unlink(i, heads, after, before)
                places[i] = p
                found += 1
                break
            i = after[i]
    return touched
