"""What regions would bring: counts of keys by part of the hash range, of one side against all of the other."""

import numpy as np

from promising.summaries.kernels.jit import kernel


@kernel(
    "void(int64[::1], uint8[::1], uint16[::1], float32[::1], boolean[::1], float64[:,::1], int64, float64[::1],"
    " float64[::1])"
)
def outputs(starts, lgs, parts, tuples, left, sums, least_lg, totals, out):
    """The expected pairs of each region that is `left` with the tuples that `sums` counts by part.

    Row r of `sums` has those that are known by 2^(least_lg + r) parts: they meet in the wider part of the two. Keys
    that only share a part are taken out as far as can be expected of them; a region that shares one is above 0.
    """
    rows = sums.shape[0]
    ends = np.zeros((rows, sums.shape[1] + 1))
    for r in range(rows):
        for i in range(1 << (least_lg + r)):
            ends[r, i + 1] = ends[r, i] + sums[r, i]
    for g in range(lgs.size):
        if not left[g]:
            continue
        lg = np.int64(lgs[g])
        sure = 0.0
        shared = 0.0
        for r in range(rows):
            total = ends[r, 1 << (least_lg + r)]
            if total <= 0.0:
                continue
            finer = least_lg + r - lg
            found = 0.0
            for e in range(starts[g], starts[g + 1]):
                part = np.int64(parts[e])
                if finer >= 0:
                    found += tuples[e] * (ends[r, (part + 1) << finer] - ends[r, part << finer])
                else:
                    found += tuples[e] * sums[r, part >> -finer]
            share = 1.0 / (1 << min(lg, least_lg + r))
            sure += (found - totals[g] * total * share) / (1.0 - share)
            shared += found
        out[g] = max(sure, shared * 1e-6)


@kernel("void(int64[::1], uint8[::1], uint16[::1], float32[::1], int64[::1], float64, int64, float64[:,::1])")
def add(starts, lgs, parts, tuples, regions, sign, least_lg, sums):
    """Add the tuples of these regions to the sums by part."""
    for g in regions:
        for e in range(starts[g], starts[g + 1]):
            sums[np.int64(lgs[g]) - least_lg, parts[e]] += sign * tuples[e]


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
