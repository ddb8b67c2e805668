"""Merges of sorted numbers with their places, a bounded number of them at a time."""

from promising.summaries.kernels.jit import kernel


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64)",
)
def merge(left, left_places, right, right_places, out, out_places, at, most):
    """Merge two sorted lists; of equal numbers, those of `left` first.

    at: how many were taken of `left` and of `right` so far; it goes on by `most` together, or to the end.
    """
    i, j = at[0], at[1]
    end = min(i + j + most, left.size + right.size)
    while i + j < end and i < left.size and j < right.size:
        k = i + j
        if left[i] <= right[j]:
            out[k] = left[i]
            out_places[k] = left_places[i]
            i += 1
        else:
            out[k] = right[j]
            out_places[k] = right_places[j]
            j += 1
    while i + j < end and i < left.size:
        out[i + j] = left[i]
        out_places[i + j] = left_places[i]
        i += 1
    while i + j < end and j < right.size:
        out[i + j] = right[j]
        out_places[i + j] = right_places[j]
        j += 1
    at[0] = i
    at[1] = j
