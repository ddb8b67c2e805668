"""Binary heap of entry numbers, highest priority on top; ties by lower `tie`, so the order is deterministic."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel("boolean(float64[::1], int64[::1], int32, int32)", inline="always")
def before(priority, tie, a, b):
    return priority[a] > priority[b] or (priority[a] == priority[b] and tie[a] < tie[b])


@kernel("void(int32[::1], int64, int64, float64[::1], int64[::1])", inline="always")
def sift_down(heap, size, at, priority, tie):
    """Sift the entry at `at` down among the first `size`."""
    moving = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and before(priority, tie, heap[child + 1], heap[child]):
            child += 1
        if not before(priority, tie, heap[child], moving):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moving


@kernel("void(int32[::1], int64, float64[::1], int64[::1])")
def heapify(heap, size, priority, tie):
    """Heapify the first `size` numbers, in O(size)."""
    for at in range(size // 2 - 1, -1, -1):
        sift_down(heap, size, at, priority, tie)


@kernel("int64(int32[::1], int64, int32[::1], float64[::1], int64[::1])")
def push(heap, size, entries, priority, tie):
    """Add entries; returns the new size."""
    for i in range(entries.size):
        moving = entries[i]
        at = size
        size += 1
        while at > 0:
            parent = (at - 1) >> 1
            if not before(priority, tie, moving, heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = moving
    return size


@kernel("boolean(float64, int64, float64, int64)", inline="always")
def within(priority, tie, least, last):
    """Whether an entry ranks no later than (`least`, `last`)."""
    return priority > least or (priority == least and tie <= last)


@kernel("int64(float64[::1], int64[::1], uint8[::1], int64, float64, int64, int32[::1])")
def sort_out(priority, tie, pooled, size, least, last, out):
    """Remove entries that rank no later than that from the pool, as many as fit; returns how many."""
    taken = 0
    for e in range(size):
        if pooled[e] and within(priority[e], tie[e], least, last):
            if taken == out.size:
                return taken
            pooled[e] = 0
            out[taken] = e
            taken += 1
    return taken


@kernel(
    "int64(int32[::1], int64, float64[::1], int64[::1], uint8[::1], uint8, int64[::1], int64, float64, int64, float64,"
    " int32[::1])"
)
def pop(heap, size, priority, tie, state, wanted, units, most, least, last, above, out):
    """Pop the best entries while they qualify; returns how many, by which the heap has shrunk.

    They are in state `wanted` (255: any), rank no later than (`least`, `last`), have a priority over `above`, and total
    at most `most` units, except that the first may exceed them.
    """
    taken = 0
    total = np.int64(0)
    while size > 0 and taken < out.size:
        top = heap[0]
        if not within(priority[top], tie[top], least, last) or (wanted != 255 and state[top] != wanted):
            break
        if (taken > 0 and total + units[top] > most) or priority[top] <= above:
            break
        total += units[top]
        out[taken] = top
        taken += 1
        size -= 1
        heap[0] = heap[size]
        if size > 0:
            sift_down(heap, size, 0, priority, tie)
    return taken
