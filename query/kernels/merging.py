"""Merges of sorted places, a bounded number of them at a time."""

from promising.summaries.kernels.jit import kernel


@kernel("void(Array(int64, 1, 'C', readonly=True), int64[::1], int64[::1], int64[::1], int64[::1], int64)")
def merge(words, left, right, out, at, most):
    """Merge two lists of places, each sorted by the words there; of equal ones, those of `left` first.

    at: places taken of `left` and of `right` so far, which go on by `most` together, or to the end.
    """
    i, j = at[0], at[1]
    end = min(i + j + most, left.size + right.size)
    while i + j < end:
        if j == right.size or (i < left.size and words[left[i]] <= words[right[j]]):
            out[i + j] = left[i]
            i += 1
        else:
            out[i + j] = right[j]
            j += 1
    at[0] = i
    at[1] = j
