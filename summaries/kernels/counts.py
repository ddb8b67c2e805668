"""Counts of keys by bucket: sketches of many zones, laid out [zone][bucket][row][column], built per key and size.

All are linear in the tuples. A key's hash gives its bucket by its top bits, and its column and sign in each row as
`summaries/kernels/sketch.py` says.
"""

import numpy as np

from promising.summaries.kernels.hashing import remix, row_word
from promising.summaries.kernels.jit import kernel


@kernel("int64(int64, int64)")
def bucket_of(h, shift):
    """The value bucket: the top bits of the hash. `shift` is 64 - log2(buckets)."""
    return np.int64(np.uint64(h) >> np.uint64(shift)) if shift < 64 else 0


@kernel(
    [
        "void(int16[::1], int64, int32, int64, int64, int64, boolean)",
        "void(int32[::1], int64, int32, int64, int64, int64, boolean)",
    ],
    inline="always",
)
def count_into(counters, h, size, bucket, depth, lg_width, signed):
    """Add `size` tuples of a key to its bucket's sketch, laid out [bucket][row][column]; a count-min has no signs."""
    step = lg_width + 1
    base = bucket * depth << lg_width
    word = row_word(np.uint64(h))
    bits = word
    left = 64 // step
    for _ in range(depth):
        if left == 0:
            word = remix(word)
            bits = word
            left = 64 // step
        low = np.int64(bits & np.uint64((2 << lg_width) - 1))
        counters[base + (low >> 1)] += -size if signed and low & 1 == 1 else size
        bits >>= np.uint64(step)
        left -= 1
        base += 1 << lg_width


@kernel(
    [
        "void(int64[::1], int32[::1], int64, int64, int64, int16[::1], int64[::1])",
        "void(int64[::1], int32[::1], int64, int64, int64, int32[::1], int64[::1])",
    ]
)
def sketch_keys(keys, sizes, shift, depth, lg_width, counters, cells):
    """Add `sizes[i]` tuples of `keys[i]` to the sketches of their buckets, and to the tuple counts by bucket."""
    for g in range(keys.size):
        h = keys[g]
        size = sizes[g]
        b = bucket_of(h, shift)
        cells[b] += size
        count_into(counters, h, size, b, depth, lg_width, True)


@kernel("void(int16[::1], int32[::1])")
def pour(counters, total):
    """Add a zone's counters to its block's."""
    for i in range(counters.size):
        total[i] += counters[i]


@kernel(
    [
        "void(int16[:,::1], int64[::1], int64[::1], int64[::1], int64, int64, int64, float64[::1], float64[::1])",
        "void(int32[:,::1], int64[::1], int64[::1], int64[::1], int64, int64, int64, float64[::1], float64[::1])",
    ]
)
def medians(counters, hashes, key, zone, shift, depth, lg_width, value, own):
    """Count-sketch estimate of hashes[key[i]] in the grid counters[zone[i]], laid out [bucket][row][column].

    `own` gets the mean over rows of the squares of the key's counters: its share of the cell's F2.
    """
    width = 1 << lg_width
    step = lg_width + 1
    per_word = 64 // step
    rows = np.empty(depth, np.int64)
    for i in range(key.size):
        h = hashes[key[i]]
        base = bucket_of(h, shift) * depth * width
        word = row_word(np.uint64(h))
        bits = word
        left = per_word
        squares = 0.0
        for r in range(depth):
            if left == 0:
                word = remix(word)
                bits = word
                left = per_word
            low = np.int64(bits & np.uint64(2 * width - 1))
            c = np.int64(counters[zone[i], base + (low >> 1)])
            c = c if low & 1 == 0 else -c
            squares += float(c) * float(c)
            at = r  # insertion sort: the depth is small
            while at > 0 and rows[at - 1] > c:
                rows[at] = rows[at - 1]
                at -= 1
            rows[at] = c
            bits >>= np.uint64(step)
            left -= 1
            base += width
        value[i] = rows[depth // 2]
        own[i] = squares / depth


@kernel(
    [
        "void(int64[::1], int32[::1], int64, int64, int64, int16[::1], int64[::1])",
        "void(int64[::1], int32[::1], int64, int64, int64, int32[::1], int64[::1])",
    ]
)
def count_keys(keys, sizes, shift, depth, lg_width, counters, cells):
    """As `sketch_keys`, without signs: the counters of a count-min."""
    for g in range(keys.size):
        b = bucket_of(keys[g], shift)
        cells[b] += sizes[g]
        count_into(counters, keys[g], sizes[g], b, depth, lg_width, False)


@kernel(
    [
        "void(int16[:,::1], int64[::1], int64[::1], int64[::1], int64, int64, int64, float64[::1])",
        "void(int32[:,::1], int64[::1], int64[::1], int64[::1], int64, int64, int64, float64[::1])",
    ]
)
def least(counters, hashes, key, zone, shift, depth, lg_width, value):
    """Least counter of hashes[key[i]] in counters[zone[i]], never below the key's own tuples."""
    width = 1 << lg_width
    step = lg_width + 1
    for i in range(key.size):
        h = hashes[key[i]]
        base = bucket_of(h, shift) * depth * width
        word = row_word(np.uint64(h))
        bits = word
        left = 64 // step
        for r in range(depth):
            if left == 0:
                word = remix(word)
                bits = word
                left = 64 // step
            low = np.int64(bits & np.uint64(2 * width - 1))
            c = np.float64(counters[zone[i], base + (low >> 1)])
            if r == 0 or c < value[i]:
                value[i] = c
            bits >>= np.uint64(step)
            left -= 1
            base += width


@kernel(
    [
        "void(int16[::1], int64, int64, float64, float64[::1])",
        "void(int32[::1], int64, int64, float64, float64[::1])",
    ]
)
def excess(counters, depth, width, chance, out):
    """By bucket, the least t that the columns of all rows exceed together with a probability of at most `chance`."""
    rows = np.empty((depth, width), np.int64)
    for b in range(out.size):
        base = b * depth * width
        low, high = np.int64(0), np.int64(0)
        for r in range(depth):
            for c in range(width):
                rows[r, c] = counters[base + r * width + c]
            rows[r].sort()
            high = max(high, rows[r, width - 1])
        while low < high:
            middle = (low + high) // 2
            above = 1.0
            for r in range(depth):
                above *= np.float64(width - np.searchsorted(rows[r], middle, side="right")) / np.float64(width)
            if above <= chance:
                high = middle
            else:
                low = middle + 1
        out[b] = np.float64(low)
