"""Columns by row, and segments of them, against numpy."""

import numpy as np
import pytest

from promising.index.kernels.gather import expand, gather, number

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint8])
def test_gather_reads_the_rows_in_the_order_asked(kind):
    rng = np.random.default_rng(1)
    column = rng.integers(0, 200, 50).astype(kind)
    rows = rng.integers(0, 50, 80).astype(np.int32)
    out = np.zeros(80, kind)
    gather(column, rows, out)
    assert out.tolist() == column[rows].tolist()


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.int32, np.uint8])
def test_expand_writes_segment_after_segment_and_number_says_whose_they_are(kind):
    values = np.arange(20).astype(kind)
    starts, counts = np.array([0, 5, 5, 12], np.int64), np.array([5, 0, 7, 8], np.int64)
    which = np.array([2, -1, 0, 1, 2, 3], np.int64)
    parts = [(i, v) for i, w in enumerate(which) if w >= 0 for v in values[starts[w] : starts[w] + counts[w]]]
    out, whose = np.zeros(len(parts), kind), np.full(len(parts), -1, np.int32)
    expand(values, starts, counts, which, out)
    number(counts, which, whose)
    assert list(zip(whose.tolist(), out.tolist(), strict=True)) == parts
