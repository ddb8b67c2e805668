"""Reading columns by row."""

import numpy as np

from summaries.kernels.jit import kernel


@kernel(
    [
        "void(int64[::1], int32[::1], int64[::1])",
        "void(float64[::1], int32[::1], float64[::1])",
        "void(uint8[::1], int32[::1], uint8[::1])",
    ]
)
def gather(column, rows, out):
    """out[i] = column[rows[i]]; the loads are independent, so many are in flight."""
    for i in range(rows.size):
        out[i] = column[np.uint64(rows[i])]


@kernel(
    [
        "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
        "void(float64[::1], int64[::1], int64[::1], int64[::1], float64[::1])",
        "void(int32[::1], int64[::1], int64[::1], int64[::1], int32[::1])",
        "void(uint8[::1], int64[::1], int64[::1], int64[::1], uint8[::1])",
    ]
)
def expand(values, starts, counts, which, out):
    """Segments of `values` one after the other: for each i the segment which[i], or none if that is negative."""
    at = 0
    for i in range(which.size):
        w = which[i]
        if w >= 0:
            n = counts[w]
            out[at : at + n] = values[starts[w] : starts[w] + n]
            at += n


@kernel("void(int64[::1], int64[::1], int32[::1])")
def number(counts, which, out):
    """The index i of each value that `expand` writes."""
    at = 0
    for i in range(which.size):
        if which[i] >= 0:
            n = counts[which[i]]
            out[at : at + n] = np.int32(i)
            at += n
