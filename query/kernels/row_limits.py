"""Counts rows by value, up to a limit."""

from promising.summaries.kernels.jit import kernel


@kernel("int64(int32[::1], int64[::1], int64, boolean[::1])")
def take(values, taken, most, kept):
    """Keep a row if fewer than `most` of its value were kept before, here or earlier. Returns how many were kept."""
    made = 0
    for i in range(values.size):
        value = values[i]
        kept[i] = taken[value] < most
        if kept[i]:
            taken[value] += 1
            made += 1
    return made
