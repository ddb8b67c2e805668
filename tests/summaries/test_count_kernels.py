"""The kernels of count-min cells against plain Python, and against the summary of one cell."""

import numpy as np
import pytest

from promising.summaries import CountMin
from promising.summaries.adt import BOUNDS
from promising.summaries.kernels.counts import count_keys, excess, least
from tests.index.kernels.plain import bucket, places, some_hashes

pytestmark = pytest.mark.kernel

SIZES = [(1, 1, 2), (4, 3, 16), (2, 9, 1 << 12)]


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize(("buckets", "depth", "width"), SIZES)
def test_every_tuple_is_in_a_counter_of_each_row(buckets, depth, width, dtype):
    hashes = some_hashes(200, 30, 4)
    keys, sizes = np.unique(hashes, return_counts=True)
    shift, lg = 64 - (buckets.bit_length() - 1), width.bit_length() - 1
    counters, cells = np.zeros((2, buckets * depth * width), dtype), np.zeros(buckets, np.int64)
    count_keys(keys, sizes.astype(np.int32), shift, depth, lg, counters[1], cells)
    expected = np.zeros((buckets, depth, width), np.int64)
    for h in hashes.tolist():
        for row, (column, _) in enumerate(places(h, depth, width)):
            expected[bucket(h, buckets), row, column] += 1
    assert (counters[1].reshape(buckets, depth, width) == expected).all() and not counters[0].any()
    assert cells.tolist() == np.bincount([bucket(h, buckets) for h in hashes.tolist()], minlength=buckets).tolist()

    value = np.empty(len(keys))
    least(counters, keys, np.arange(len(keys)), np.ones(len(keys), np.int64), shift, depth, lg, value)
    for h, found in zip(keys.tolist(), value.tolist(), strict=True):
        rows = [expected[bucket(h, buckets), row, column] for row, (column, _) in enumerate(places(h, depth, width))]
        assert found == min(rows)


@pytest.mark.parametrize(("depth", "width"), [(1, 2), (3, 16), (5, 64)])
def test_the_likely_excess_is_that_of_the_summary(depth, width):
    rng = np.random.default_rng(depth)
    tables = [CountMin(depth, width) for _ in range(6)]
    for n, table in enumerate(tables):
        table.counters[:] = rng.integers(0, 1 + 40 * n, table.counters.shape) if n else 0
    counters = np.stack([table.counters for table in tables]).astype(np.int32).reshape(-1)
    found = np.empty(len(tables))
    excess(counters, depth, width, 1 - BOUNDS, found)
    assert found.tolist() == [table._likely_excess() for table in tables]
