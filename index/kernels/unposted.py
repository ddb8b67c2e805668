"""Keys without postings: counted when a zone is sealed, and looked for in cells."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel("int64(int64[::1], int32[::1], int64[::1], int32[::1])")
def count_keys(hashes, lines, keys, counts):
    """The distinct keys in the order of their first tuples, with their counts; returns how many.

    `lines` are zeros, a power of two and more than there are tuples.
    """
    mask = np.uint64(lines.size - 1)
    found = 0
    for i in range(hashes.size):
        h = hashes[i]
        at = np.uint64(h) & mask
        while lines[at] != 0 and keys[lines[at] - 1] != h:
            at = (at + np.uint64(1)) & mask
        if lines[at] == 0:
            keys[found] = h
            counts[found] = 1
            found += 1
            lines[at] = found
        else:
            counts[lines[at] - 1] += 1
    return found


@kernel("int64(int64[::1], int32[::1], int64[::1], int32[::1], int32[::1])")
def find_rows(wanted, lines, hashes, which, places):
    """The places of `hashes` that are among the distinct `wanted`, and which of those they are; returns how many.

    `lines` is from `count_keys` of `wanted`.
    """
    mask = np.uint64(lines.size - 1)
    found = 0
    for i in range(hashes.size):
        h = hashes[i]
        at = np.uint64(h) & mask
        while lines[at] != 0 and wanted[lines[at] - 1] != h:
            at = (at + np.uint64(1)) & mask
        if lines[at] != 0:
            which[found] = lines[at] - 1
            places[found] = i
            found += 1
    return found
