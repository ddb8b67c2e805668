"""How much bounds of a sum widen for extreme rows that were listed but not read."""

import math

import numpy as np
import pyarrow as pa
import pytest

from promising.query.aggregate.aggregates import Aggregate
from promising.query.aggregate.certain import LOOKS, Certain

SUM, AVG, COUNT = Aggregate("sum", "float"), Aggregate("avg", "float"), Aggregate("count")


def listed(scores: list[float]) -> tuple[np.ndarray, np.ndarray]:
    squares = np.square(scores)
    return squares, np.concatenate((np.cumsum(squares[::-1])[::-1], [0.0]))


def test_unread_rows_count_by_their_scores():
    """Values are five times the score, and every other row is no row of the answer."""
    scores = np.linspace(40, 1, 1_000)
    certain = Certain([COUNT, SUM], *listed(scores.tolist()))
    ranks = np.arange(0, 500, 2)
    certain.add([None, pa.array(5 * scores[ranks])], ranks)
    drawn = np.ones(300)
    unlisted = np.full(300, np.iinfo(np.int64).max)
    factors, gains = certain.widened(500, [None, pa.array(drawn)], unlisted, 1_000, 100_000)
    missed = 12.5 * np.square(scores[500:]).sum()  # 25 squares of the score, of one row in two
    assert factors == {1: pytest.approx(math.sqrt(LOOKS * (1 + missed / (100 * 300))), rel=0.01)}
    ((ratio, square),) = gains
    assert ratio == pytest.approx(12.5, rel=0.01) and square == 0.3


def test_what_the_sample_shows_of_them_is_not_counted_twice():
    scores = np.linspace(40, 1, 1_000)
    certain = Certain([SUM], *listed(scores.tolist()))
    certain.add([pa.array(scores[:500])], np.arange(500))
    values = np.array([40.0] * 20 + [1.0] * 300)
    shown = np.array([700] * 20 + [np.iinfo(np.int64).max] * 300)
    assert certain.widened(500, [pa.array(values)], shown, 1_000, 100_000)[0] == {0: math.sqrt(LOOKS)}
    hidden = np.full(320, np.iinfo(np.int64).max)
    assert certain.widened(500, [pa.array(values)], hidden, 1_000, 100_000)[0][0] > math.sqrt(LOOKS)


def test_averages_count_by_their_deviations():
    """All values are equal: nothing deviates, whatever the scores."""
    certain = Certain([AVG], *listed([3.0] * 100))
    certain.add([pa.array([7.0] * 50)], np.arange(50))
    factors, gains = certain.widened(50, [pa.array([7.0] * 20)], np.full(20, 1 << 40), 20, 10_000)
    assert factors == {0: math.sqrt(LOOKS)} and gains == [(0.0, 0.0)]


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_values_that_are_none_widen_nothing(value: float | None):
    certain = Certain([SUM], *listed([5.0, 4.0, 3.0]))
    certain.add([pa.array([value, value], pa.float64())], np.arange(2))
    factors, _ = certain.widened(2, [pa.array([1.0, 2.0])], np.full(2, 1 << 40), 2, 10)
    assert factors == {0: math.sqrt(LOOKS)} or value == math.inf
    assert certain.widened(0, [pa.array([], pa.float64())], np.empty(0, np.int64), 0, 10)[0] == {0: math.sqrt(LOOKS)}
