"""Count-min: one-sided, and as good as the one of DataSketches."""

import datasketches
import numpy as np
import pytest

from promising.errors import BadSize, NotContained
from promising.summaries import CountMin

KEYS = 500


def test_never_too_low_and_as_close_as_datasketches():
    """Same rows and columns, same streams: neither is ever too low, and the mean excess differs by 10 % at most."""
    ours, theirs = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1, KEYS + 1)
        values = rng.choice(KEYS, 3000, p=weights / weights.sum())
        truth = np.bincount(values, minlength=KEYS)
        table = CountMin(4, 64, seed)
        table.summarize(values)
        oracle = datasketches.count_min_sketch(4, 64, seed + 1)
        for value in values.tolist():
            oracle.update(value)
        estimate = table.estimates(np.arange(KEYS))
        assert (estimate.value >= truth).all()
        assert (estimate.upper == estimate.value).all()
        ours.append(np.mean(estimate.value - truth))
        theirs.append(np.mean([oracle.get_estimate(key) for key in range(KEYS)] - truth))
    assert min(ours) > 5, "collisions happen"
    assert 0.9 <= np.mean(ours) / np.mean(theirs) <= 1.1


def test_zero_proves_absence():
    table = CountMin(3, 1024, seed=5)
    table.summarize(np.arange(100))
    upper = table.estimates(np.arange(10_000)).upper
    assert (upper[:100] >= 1).all()
    assert (upper == 0).mean() > 0.9


def test_lower_bound_is_the_least_that_the_chance_allows():
    """A row in halves of 0 and 8 tuples: all 4 rows hold 8 with a chance of 1/16, too often; all 5 of them not."""
    for depth, excess in ((4, 8), (5, 0)):
        table = CountMin(depth, 2)
        table.counters[:] = [0, 8]
        table.total = 8
        table._changed()
        assert table._likely_excess() == excess


def test_subtract_sees_what_was_never_there():
    table, other = CountMin(seed=1), CountMin(seed=1)
    table.summarize([1, 1, 1])
    other.summarize([2])
    with pytest.raises(NotContained, match="below 0"):
        table.subtract(other)
    assert table.total == 3
    assert table.estimate(1).value == 3


@pytest.mark.parametrize(("depth", "width"), [(0, 64), (64, 64), (4, 3), (4, 1)])
def test_sizes_that_cannot_be(depth: int, width: int):
    with pytest.raises(BadSize):
        CountMin(depth, width)


def test_confidence_is_from_the_table():
    """All tuples in one key: an absent key meets it in all rows with a chance of 1 / width**depth."""
    table = CountMin(2, 4)
    table.summarize([1], [100])
    assert table.confidence() == 1 - 1 / 16
