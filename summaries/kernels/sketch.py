"""Update and estimate for count-sketch and count-min, on hashes.

Both derive their columns from the same bits. The first word of a key is `row_word(h)`. Row r takes the lowest
lg(width)+1 remaining bits: the lowest bit is the sign (0 is +1, 1 is -1; count-min ignores it), the others the column.
When fewer remain, the next word is `remix` of the whole previous word. Counters are `int64[depth, width]`, the width a
power of two.
"""

import numpy as np

from promising.summaries.kernels.hashing import remix, row_word
from promising.summaries.kernels.jit import kernel

ONE = np.uint64(1)


@kernel("uint64(int64)")
def row_bits(width):
    """Bits of a word that one row uses."""
    bits = np.uint64(1)
    while (1 << np.int64(bits - ONE)) < width:
        bits += ONE
    return bits


@kernel("void(uint64[::1], int64[::1], int64[:, ::1], float64[::1])")
def count_sketch_update(hashes, counts, counters, squares):
    """Count `counts[i]` tuples of key `hashes[i]`, and update each row's sum of squares: O(depth) per key.

    A counter c that gets s*n changes the sum by 2*s*n*c + n*n; in float64 that is exact while the sum is below 2**53.
    """
    depth, width = counters.shape
    bits = row_bits(width)
    mask = np.uint64(width - 1)
    for i in range(hashes.size):
        full = row_word(hashes[i])
        word = full
        left = np.uint64(64)
        for r in range(depth):
            if left < bits:
                full = remix(full)
                word = full
                left = np.uint64(64)
            column = np.int64((word >> ONE) & mask)
            change = counts[i] if (word & ONE) == np.uint64(0) else -counts[i]
            before = counters[r, column]
            squares[r] += 2.0 * np.float64(change) * np.float64(before) + np.float64(change) * np.float64(change)
            counters[r, column] = before + change
            word >>= bits
            left -= bits


@kernel("void(uint64[::1], int64[:, ::1], float64[::1], int64[::1], float64[::1])")
def count_sketch_estimate(hashes, counters, squares, value, rest):
    """The median of the rows, unclipped and so unbiased, and the largest sum of squares outside the key's column.

    The depth is odd. In one row the columns without the key hold (1 - 1/width) of the other keys' F2 on average.
    """
    depth, width = counters.shape
    bits = row_bits(width)
    mask = np.uint64(width - 1)
    rows = np.empty(depth, np.int64)
    for i in range(hashes.size):
        full = row_word(hashes[i])
        word = full
        left = np.uint64(64)
        most = 0.0
        for r in range(depth):
            if left < bits:
                full = remix(full)
                word = full
                left = np.uint64(64)
            counter = counters[r, np.int64((word >> ONE) & mask)]
            most = max(most, squares[r] - np.float64(counter) * np.float64(counter))
            signed = counter if (word & ONE) == np.uint64(0) else -counter
            at = r
            while at > 0 and rows[at - 1] > signed:
                rows[at] = rows[at - 1]
                at -= 1
            rows[at] = signed
            word >>= bits
            left -= bits
        value[i] = rows[depth // 2]
        rest[i] = most


@kernel("void(uint64[::1], int64[::1], int64[:, ::1])")
def count_min_update(hashes, counts, counters):
    """Count `counts[i]` tuples of key `hashes[i]` in every row: O(depth) per key."""
    depth, width = counters.shape
    bits = row_bits(width)
    mask = np.uint64(width - 1)
    for i in range(hashes.size):
        full = row_word(hashes[i])
        word = full
        left = np.uint64(64)
        for r in range(depth):
            if left < bits:
                full = remix(full)
                word = full
                left = np.uint64(64)
            counters[r, np.int64((word >> ONE) & mask)] += counts[i]
            word >>= bits
            left -= bits


@kernel("void(uint64[::1], int64[:, ::1], int64[::1])")
def count_min_estimate(hashes, counters, value):
    """The least counter of each key, never below its true count."""
    depth, width = counters.shape
    bits = row_bits(width)
    mask = np.uint64(width - 1)
    for i in range(hashes.size):
        full = row_word(hashes[i])
        word = full
        left = np.uint64(64)
        for r in range(depth):
            if left < bits:
                full = remix(full)
                word = full
                left = np.uint64(64)
            counter = counters[r, np.int64((word >> ONE) & mask)]
            if r == 0 or counter < value[i]:
                value[i] = counter
            word >>= bits
            left -= bits
