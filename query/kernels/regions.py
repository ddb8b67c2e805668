"""What regions would bring: counts of keys by part of the hash range, of one side against all of the other."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel(
    "void(int64[::1], uint8[::1], uint16[::1], float64[::1], boolean[::1], float64[::1], int64, float64[::1],"
    " float64[::1])"
)
def outputs(starts, lgs, parts, tuples, left, sums, lg_parts, totals, out):
    """The expected pairs of each region that is `left` with the tuples that `sums` counts by part.

    Keys that only share a part are taken out as far as can be expected of them; a region that shares one is above 0.
    """
    ends = np.zeros(sums.size + 1)
    for i in range(sums.size):
        ends[i + 1] = ends[i] + sums[i]
    total = ends[sums.size]
    for g in range(lgs.size):
        if not left[g]:
            continue
        step = lg_parts - np.int64(lgs[g])
        found = 0.0
        for e in range(starts[g], starts[g + 1]):
            first = np.int64(parts[e]) << step
            found += tuples[e] * (ends[first + (1 << step)] - ends[first]) / (1 << step)
        share = 1.0 / (1 << lg_parts)
        sure = (found - totals[g] * total * share) / (1.0 - share)
        out[g] = max(sure, found * 1e-6)


@kernel("void(int64[::1], uint8[::1], uint16[::1], float64[::1], int64[::1], float64, int64, float64[::1])")
def add(starts, lgs, parts, tuples, regions, sign, lg_parts, sums):
    """Add the tuples of these regions to the sums by part, those of a wider part evenly."""
    for g in regions:
        step = lg_parts - np.int64(lgs[g])
        for e in range(starts[g], starts[g + 1]):
            first = np.int64(parts[e]) << step
            each = sign * tuples[e] / (1 << step)
            for i in range(first, first + (1 << step)):
                sums[i] += each


@kernel("void(int64[::1], uint8[::1], uint16[::1], int64, boolean[::1])")
def occupy(starts, lgs, parts, lg_parts, out):
    """Mark the parts that may have keys."""
    for g in range(lgs.size):
        step = lg_parts - np.int64(lgs[g])
        for e in range(starts[g], starts[g + 1]):
            first = np.int64(parts[e]) << step
            out[first : first + (1 << step)] = True


@kernel("void(int64[::1], uint8[::1], uint16[::1], boolean[::1], int64, boolean[::1])")
def meet(starts, lgs, parts, marks, lg_parts, out):
    """Which regions have an entry with a marked part, so may have a key of it."""
    for g in range(lgs.size):
        step = lg_parts - np.int64(lgs[g])
        out[g] = False
        for e in range(starts[g], starts[g + 1]):
            first = np.int64(parts[e]) << step
            for i in range(first, first + (1 << step)):
                if marks[i]:
                    out[g] = True
                    break
            if out[g]:
                break
