"""The greatest magnitudes of a block of tuples."""

import math

from promising.summaries.kernels.jit import kernel

MAGNITUDES, VALUES, APART = range(3)  # columns of the figures of a block


@kernel("void(float64[::1], boolean[::1], int64, float64[::1], int64[::1], float64[::1])")
def add_extremes(values, nulls, arrival, sizes, arrivals, figures):
    """Add consecutive tuples, the first with that arrival number, to a block; `nulls` may be empty.

    `sizes`, descending, are the greatest magnitudes so far and `arrivals` whose they are; of equal ones the earliest
    count. NaN and the infinities have an infinite magnitude. The figures add up finite magnitudes, values, and values
    that are not finite.
    """
    least = sizes[-1]
    total = figures[MAGNITUDES]
    present = apart = 0
    masked = nulls.size > 0
    for i in range(values.size):
        if masked and nulls[i]:
            continue
        size = abs(values[i])
        present += 1
        if size < math.inf:
            total += size
        else:
            size = math.inf
            apart += 1
        if size > least:
            at = sizes.size - 1
            while at > 0 and sizes[at - 1] < size:
                sizes[at] = sizes[at - 1]
                arrivals[at] = arrivals[at - 1]
                at -= 1
            sizes[at] = size
            arrivals[at] = arrival + i
            least = sizes[-1]
    figures[MAGNITUDES] = total
    figures[VALUES] += present
    figures[APART] += apart
