"""Results of a standing query in pages, by end: a slot of a calendar is a chain of pages.

A page is `PAGE` consecutive places of the arrays; all pages of a slot are full, except the first, which has
`fills[slot]` results. `heads[slot]` is the first page of a slot, -1 if none, `after` the next page of a chain or of the
free list, and `owners` the slot of a page, -1 if free. An empty place has `FREE` as its end. Results that end together
are adjacent, so inserting, checking and deleting access memory sequentially, unlike linked places.
"""

from promising.query.kernels.stores import FREE
from promising.summaries.kernels.jit import kernel

PAGE = 4

PAGES = "int32[::1], int32[::1], int32[::1], int32[::1]"  # heads, fills, after, owners


@kernel(f"int64(int64, int64, {PAGES})", inline="always")
def begin(slot, free, heads, fills, after, owners):
    """Prepend a free page to a slot; returns the next free one."""
    then = after[free]
    after[free] = heads[slot]
    owners[free] = slot
    heads[slot] = free
    fills[slot] = 0
    return then


@kernel(f"int64(int64, int64, {PAGES})", inline="always")
def drop_last(slot, free, heads, fills, after, owners):
    """Remove the last result of a slot's first page; returns the first free page."""
    fills[slot] -= 1
    if fills[slot] == 0:
        page = heads[slot]
        heads[slot] = after[page]
        fills[slot] = PAGE
        owners[page] = -1
        after[page] = free
        return page
    return free


@kernel(
    f"int64(int64[:,::1], int64[::1], int64[::1], int64, int64, int64, int64, int64[:,::1], int64[::1], int64[::1],"
    f" {PAGES})"
)
def file(new_ids, new_exp, new_born, width, swept, never, free, ids, exp, born, heads, fills, after, owners):
    """Insert results into the slots of their ends, or into slot `swept` if they end earlier.

    The last slot holds those that end `never`. A single `new_born` applies to all. There must be enough pages; returns
    the first free one.
    """
    slots = heads.size - 1
    base = swept % slots
    for i in range(new_exp.size):
        slot = slots
        if new_exp[i] < never:
            ahead = max(new_exp[i] // width - swept, 0)
            slot = base + (ahead if ahead < slots else ahead % slots)  # mostly avoids a division
            if slot >= slots:
                slot -= slots
        if heads[slot] < 0 or fills[slot] == PAGE:
            free = begin(slot, free, heads, fills, after, owners)
        p = heads[slot] * PAGE + fills[slot]
        fills[slot] += 1
        for w in range(ids.shape[1]):
            ids[p, w] = new_ids[i, w]
        exp[p] = new_exp[i]
        born[p] = new_born[min(i, new_born.size - 1)]
    return free


@kernel(f"UniTuple(int64, 3)(int64, int64, int64, int64, int64[:,::1], int64[::1], int64[::1], {PAGES})")
def sweep(now, first, number, free, ids, exp, born, heads, fills, after, owners):
    """Delete ended results in `number` slots from `first`; returns touched, ended, and the first free page.

    Compacting the rest needs one more free page than the results do.
    """
    slots = heads.size - 1
    touched = 0
    died = 0
    for s in range(first, first + number):
        slot = s % slots
        page = heads[slot]
        held = fills[slot]
        heads[slot] = -1
        while page >= 0:
            then = after[page]
            low = page * PAGE
            left = 0
            for p in range(low, low + held):
                if exp[p] > now:
                    left += 1
            touched += held
            died += held - left
            if left == PAGE and heads[slot] >= 0:  # unchanged, behind the one being filled
                after[page] = after[heads[slot]]
                after[heads[slot]] = page
            elif left == PAGE:
                after[page] = -1
                heads[slot] = page
                fills[slot] = PAGE
            else:
                for p in range(low, low + held):
                    if exp[p] > now:
                        if heads[slot] < 0 or fills[slot] == PAGE:
                            free = begin(slot, free, heads, fills, after, owners)
                        q = heads[slot] * PAGE + fills[slot]
                        fills[slot] += 1
                        for w in range(ids.shape[1]):
                            ids[q, w] = ids[p, w]
                        exp[q] = exp[p]
                        born[q] = born[p]
                    exp[p] = FREE
                owners[page] = -1
                after[page] = free
                free = page
            held = PAGE
            page = then
    return touched, died, free


@kernel(f"int64(int32[::1], int64, int64[:,::1], int64[::1], int64[::1], {PAGES})")
def take_out(places, free, ids, exp, born, heads, fills, after, owners):
    """Delete the results at these places; the last ones of their slots fill them. Returns the first free page."""
    for i in range(places.size):
        exp[places[i]] = FREE
    for i in range(places.size):
        p = places[i]
        slot = owners[p // PAGE]
        if slot < 0 or exp[p] != FREE:  # its page was freed, or the place was refilled
            continue
        while heads[slot] >= 0 and exp[heads[slot] * PAGE + fills[slot] - 1] == FREE:
            free = drop_last(slot, free, heads, fills, after, owners)
        page = heads[slot]
        if owners[p // PAGE] < 0 or (p // PAGE == page and p >= page * PAGE + fills[slot]):
            continue
        last = page * PAGE + fills[slot] - 1
        for w in range(ids.shape[1]):
            ids[p, w] = ids[last, w]
        exp[p] = exp[last]
        born[p] = born[last]
        exp[last] = FREE
        free = drop_last(slot, free, heads, fills, after, owners)
    return free
