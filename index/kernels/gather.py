"""Reading columns by row."""

import numpy as np

from promising.summaries.kernels.jit import kernel


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


@kernel("boolean(int32[::1])")
def consecutive(rows):
    """Whether each row follows the one before."""
    apart = np.int32(0)
    for i in range(rows.size):
        apart |= rows[i] - rows[0] - np.int32(i)
    return apart == 0


@kernel(
    [
        "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
        "void(float64[::1], int64[::1], int64[::1], int64[::1], float64[::1])",
        "void(int32[::1], int64[::1], int64[::1], int64[::1], int32[::1])",
        "void(uint8[::1], int64[::1], int64[::1], int64[::1], uint8[::1])",
    ]
)
def expand(values, starts, counts, which, out):
    """Concatenates segments of `values`: for each i the segment which[i], or none if negative."""
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


@kernel("void(int64[::1], int64, int32[::1], int64[::1], int64[::1])")
def string_lengths(offsets, chunk, rows, part, ends):
    """ends[i + 1] = the length of the string at rows[i], for i in `part`; all in one chunk of a power of two rows."""
    for k in range(part.size):
        at = rows[part[k]] & (chunk - 1)
        ends[part[k] + 1] = offsets[at + 1] - offsets[at]


@kernel("void(int64[::1], uint8[::1], int64, int32[::1], int64[::1], int64[::1], uint8[::1])")
def copy_strings(offsets, data, chunk, rows, part, ends, out):
    """Copy those strings to the positions in `ends`."""
    for k in range(part.size):
        at = rows[part[k]] & (chunk - 1)
        to = ends[part[k]]
        for i in range(offsets[at], offsets[at + 1]):
            out[to] = data[i]
            to += 1


@kernel("int64(int32[::1], int64[::1], int64[::1], int64, int64, int64, int64, bool_[::1])")
def admit(rows, times, bases, lg_chunk, until, start, end, out):
    """Which rows arrived before the `until`-th tuple and lie in [start, end); returns their number."""
    found = 0
    lg = np.uint64(lg_chunk)
    local = (np.uint64(1) << lg) - np.uint64(1)
    for i in range(rows.size):
        row = np.uint64(rows[i])
        arrival = bases[row >> lg] + np.int64(row & local)
        time = times[row]
        out[i] = (arrival < until) & (time >= start) & (time < end)
        found += out[i]
    return found


@kernel("int64(int64[::1], int32[::1], int64[::1])")
def touched(times, rows, horizons):
    """Bit g is set if a row has granularity g."""
    out = np.int64(0)
    for i in range(rows.size):
        time = times[np.uint64(rows[i])]
        found = 1
        for k in range(horizons.size):
            found += time < horizons[k]
        out |= np.int64(1) << found
    return out


@kernel("void(int64[::1], int32[::1], int64[::1], int64[::1])")
def granularities(times, rows, horizons, out):
    """The granularity of each row: one more than the horizons it is behind."""
    for i in range(rows.size):
        time = times[np.uint64(rows[i])]
        found = 1
        for k in range(horizons.size):
            found += time < horizons[k]
        out[i] = found
