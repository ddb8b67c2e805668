"""What count-sketch promises beyond the laws: no bias, F2, join sizes, sizing."""

import numpy as np
import numpy.typing as npt
import pytest

from promising.errors import BadSize, Incompatible
from promising.summaries import BOUNDS, CountMin, CountSketch
from promising.summaries.hashing import hash_keys
from promising.summaries.kernels.sketch import count_sketch_estimate
from promising.summaries.sizing import tail, tail_point


def zipf(rng: np.random.Generator, tuples: int, keys: int = 400) -> npt.NDArray[np.int64]:
    weights = 1.0 / np.arange(1, keys + 1) ** 1.1
    return rng.choice(keys, tuples, p=weights / weights.sum())


def sketch_of(values: npt.NDArray[np.int64], seed: int, depth: int = 5, width: int = 64) -> CountSketch:
    sketch = CountSketch(depth, width, seed)
    sketch.summarize(values)
    return sketch


def counts_of(values: npt.NDArray[np.int64], keys: int = 400) -> npt.NDArray[np.int64]:
    return np.bincount(values, minlength=keys)


def test_the_median_is_unbiased():
    """Over seeds the mean error of a rare key is within four standard errors of 0."""
    values = zipf(np.random.default_rng(1), 2000)
    errors = []
    for seed in range(1500):
        sketch = sketch_of(values, seed, width=32)
        value, rest = np.empty(1, np.int64), np.empty(1)
        count_sketch_estimate(hash_keys([300], seed), sketch.counters, sketch._squares, value, rest)
        errors.append(int(value[0]) - int((values == 300).sum()))
    error = np.std(errors) / np.sqrt(len(errors))
    assert np.std(errors) > 5, "collisions happen"
    assert abs(np.mean(errors)) <= 4 * error


def test_bounds_of_a_heavy_key_do_not_count_the_key_itself():
    sketch = CountSketch(5, 64, seed=1)
    sketch.summarize(np.arange(1000), np.where(np.arange(1000) == 7, 100_000, 1))
    bounds = sketch.estimate(7)
    assert bounds.lower <= 100_000 <= bounds.upper
    assert bounds.upper - bounds.lower <= 50


@pytest.mark.parametrize("depth", [1, 3, 5, 9])
def test_bounds_hold_at_every_depth(depth: int):
    """Five equally heavy keys: what one of them hides in a shared counter is not missed."""
    hits = []
    for seed in range(1000):
        sketch = CountSketch(depth, 64, seed)
        sketch.summarize([1, 2, 3, 4, 5], [1000] * 5)
        bounds = sketch.estimate(1)
        hits.append(bounds.lower <= 1000 <= bounds.upper)
    assert np.mean(hits) >= BOUNDS


def test_f2_and_join_size_bounds_hold():
    """In 95 % of 1,000 streams and more, and they say something."""
    of_f2, of_join, widths = [], [], []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        left, right = zipf(rng, 1500), (zipf(rng, 1000) + int(rng.integers(2)) * 200) % 400
        here, there = sketch_of(left, seed, width=128), sketch_of(right, seed, width=128)
        f2, join = here.f2(), here.inner(there)
        true_f2, true_join = int((counts_of(left) ** 2).sum()), int((counts_of(left) * counts_of(right)).sum())
        assert f2.lower <= f2.value <= f2.upper
        assert join.lower <= join.value <= join.upper
        of_f2.append(f2.lower <= true_f2 <= f2.upper)
        of_join.append(join.lower <= true_join <= join.upper)
        widths.append((f2.upper - f2.lower) / true_f2)
    assert np.mean(of_f2) >= BOUNDS
    assert np.mean(of_join) >= BOUNDS
    assert np.mean(widths) <= 0.7


def test_join_size_of_one_key_is_exact():
    here, there = CountSketch(seed=3), CountSketch(seed=3)
    here.summarize(["milk"], [20])
    there.summarize(["milk"], [30])
    assert here.inner(there).value == 600
    assert here.f2().value == 400
    with pytest.raises(Incompatible, match="different seeds"):
        here.inner(CountSketch(seed=4))
    with pytest.raises(Incompatible, match=r"depth=5 width=64.*depth=5 width=128"):
        here.inner(CountSketch(width=128, seed=3))


def test_impossible_values_are_outside_the_bounds():
    """Nothing below 0 or above the total, also where the raw median is."""
    sketch = sketch_of(zipf(np.random.default_rng(1), 300), 1, depth=3, width=4)
    value, lower, upper = sketch.estimates(np.arange(1000))
    assert (lower >= 0).all() and (upper <= 300).all()
    assert (lower <= value).all() and (value <= upper).all()
    assert CountSketch().f2().upper == 0
    assert CountSketch().inner(CountSketch()).upper == 0


def test_squares_survive_very_large_counts():
    """Past 2**53 the running sum is no longer exact; it is taken from the counters then."""
    sketch = CountSketch(3, 16, seed=1)
    for _ in range(50):
        sketch.summarize(np.arange(20), np.full(20, 1 << 40))
    exact = [sum(int(c) ** 2 for c in row) for row in sketch.counters]
    assert np.allclose(sketch._squares, np.array(exact, float), rtol=1e-12)
    assert sketch.f2().lower > 0


def test_confidence_falls_with_the_variance():
    """More of the stream in one key, or fewer columns: less confidence. It is the stated formula."""
    even, skewed = np.arange(1000), np.where(np.arange(1000) < 200, 0, np.arange(1000))
    chances = [sketch_of(values, 1, width=width).confidence() for values in (even, skewed) for width in (1024, 64, 16)]
    assert chances[0] > 0.999
    assert chances[3] > chances[4] > chances[5]
    assert chances[1] > chances[4]
    sketch = sketch_of(skewed, 1)
    q = sketch._squares.mean() / 64 / (2 * 50.0**2)
    assert sketch.confidence() == pytest.approx(1 - 2 * tail(5, min(q, 0.5)))


@pytest.mark.parametrize(("error", "confidence"), [(0.1, 0.9), (0.05, 0.95), (0.02, 0.99)])
def test_sizing_keeps_its_promise(error: float, confidence: float):
    """The worst stream for it: as many heavy keys as fit, asked for a key that is not there."""
    values = np.repeat(np.arange(30), 50)
    f2 = 30 * 50**2
    sketch = CountSketch.for_error(error, confidence)
    assert 2 * tail(sketch.depth, 1 / (2 * sketch.width * error**2)) <= 1 - confidence
    errors = [CountSketch.for_error(error, confidence, seed) for seed in range(300)]
    for each in errors:
        each.summarize(values)
    off = np.array([each.estimate(-1).value for each in errors])
    assert np.mean(off <= error * np.sqrt(f2)) >= confidence

    tables = [CountMin.for_error(error, confidence, seed) for seed in range(300)]
    for table in tables:
        table.summarize(values)
    assert np.mean([table.estimate(-1).value <= error * values.size for table in tables]) >= confidence


def test_tail_point_is_the_edge():
    for depth in (1, 3, 5, 11):
        p = tail_point(depth, 0.025)
        assert tail(depth, p) <= 0.025 < tail(depth, p + 1e-9)


@pytest.mark.parametrize(
    ("depth", "width"), [(0, 64), (4, 64), (65, 64), (-1, 64), (5, 0), (5, 1), (5, 63), (5, 1 << 25)]
)
def test_sizes_that_cannot_be(depth: int, width: int):
    with pytest.raises(BadSize):
        CountSketch(depth, width)


NAN = float("nan")


@pytest.mark.parametrize(
    ("error", "confidence"), [(0, 0.9), (1, 0.9), (-1, 0.9), (NAN, 0.9), (1e-9, 0.9), (0.1, 0), (0.1, 1), (0.1, NAN)]
)
def test_targets_that_cannot_be(error: float, confidence: float):
    for kind in (CountSketch, CountMin):
        with pytest.raises(BadSize):
            kind.for_error(error, confidence)
