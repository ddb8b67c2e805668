"""Exact, histogram, sample, quantile, distinct, frequent: what each promises beyond the laws."""

from collections import Counter

import numpy as np
import pytest

from promising.errors import BadCount, BadQuestion, BadSize, NotContained, WrongType
from promising.summaries import Distinct, Estimate, Exact, Frequent, Histogram, Quantile, Sample, from_bytes


def test_exact_counts_and_refuses_to_go_below_zero():
    counter, other = Exact(), Exact()
    counter.summarize([1, 1, 2])
    other.summarize([2, 2])
    assert counter.counts == {1: 2, 2: 1}
    with pytest.raises(NotContained, match="cannot take 2 tuples of 2 from 1"):
        counter.subtract(other)
    assert counter.counts == {1: 2, 2: 1}
    counter.subtract(counter)
    assert counter.counts == {} and counter.total == 0


def test_histogram_edges():
    """Half open everywhere; what lies outside is counted below and above."""
    histogram = Histogram(0.0, 4.0, 4)
    histogram.summarize([-1.0, 0.0, 1.0, 3.999, 4.0, np.inf, -np.inf])
    assert histogram.counters.tolist() == [2, 1, 1, 0, 1, 2]
    assert histogram.estimate(0, 2).value == 2
    assert histogram.estimate(-np.inf, np.inf).lower == 7
    assert histogram.estimate(1.5, 1.5).upper == 0
    below = histogram.estimate(-0.5, 1.0)
    assert (below.lower, below.value, below.upper) == (1, 2, 3)


def test_histogram_value_is_the_even_share():
    histogram = Histogram(0.0, 10.0, 2)
    histogram.summarize(np.linspace(0, 9.99, 1000))
    assert histogram.estimate(1.0, 7.0).value == pytest.approx(600, abs=2)


def test_histogram_confidence_is_the_share_in_small_bins():
    histogram = Histogram(0.0, 100.0, 100)
    histogram.summarize([*range(50), *[70] * 50])
    assert histogram.confidence() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("low", "high", "bins"),
    [(0, 0, 4), (1, 0, 4), (0, np.inf, 4), (np.nan, 1, 4), (0, 1, 0), (0, 1, 1 << 21), (1, 1 + 1e-15, 64)],
)
def test_histogram_sizes_that_cannot_be(low: float, high: float, bins: int):
    with pytest.raises(BadSize):
        Histogram(low, high, bins)


def test_histogram_questions_that_cannot_be():
    for start, stop in ((1, 0), (np.nan, 1), (0, np.nan)):
        with pytest.raises(BadQuestion):
            Histogram(0, 1).estimate(start, stop)
    with pytest.raises(WrongType, match="numbers"):
        Histogram(0, 1).summarize(["a"])


def test_sample_is_uniform_also_after_merging():
    """Each of 60 tuples, in three samples of unequal length, is kept equally often: chi-square."""
    kept: Counter[int] = Counter()
    pairs: Counter[bool] = Counter()
    for seed in range(3000):
        parts = [Sample(10, 3 * seed + part) for part in range(3)]
        for part, (start, stop) in zip(parts, ((0, 5), (5, 20), (20, 60)), strict=True):
            part.summarize(np.arange(start, stop))
        parts[0].add(parts[2])
        parts[0].add(parts[1])
        held = parts[0].keys.tolist()
        assert len(set(held)) == 10
        kept.update(held)
        pairs[0 in held and 59 in held] += 1
    expected = 3000 * 10 / 60
    assert sum((kept[key] - expected) ** 2 / expected for key in range(60)) * 60 / 50 < 110
    assert abs(pairs[True] / 3000 - (10 / 60) * (9 / 59)) < 0.012, "pairs are kept independently of their sample"


def test_sample_of_the_union_is_the_smallest_of_both_in_any_order():
    parts = [Sample(16, seed) for seed in range(4)]
    for at, part in enumerate(parts):
        part.summarize(np.arange(at * 100, at * 100 + 100))
    priorities = np.sort(np.concatenate([part._priorities for part in parts]))[:16]
    kept = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        merged = parts[order[0]].copy()
        for at in order[1:]:
            merged.add(parts[at])
        assert (merged._priorities == priorities).all()
        kept.append(merged.keys.tolist())
    assert kept[0] == kept[1]


def test_sample_holds_all_while_there_is_room():
    sample = Sample(100, 1)
    sample.summarize(["a", "b"], [60, 40])
    assert sample.estimate("a").lower == sample.estimate("a").upper == 60
    assert sample.confidence() == 1.0
    sample.summarize(["c"])
    assert sample.confidence() < 1.0
    bounds = sample.estimate("a")
    assert 59 <= bounds.lower <= 60 <= bounds.upper <= 61, "what was seen is not impossible, what was not is no more"


def test_what_is_drawn_one_by_one_has_a_limit():
    for summary in (Sample(), Quantile()):
        with pytest.raises(BadCount, match="2\\*\\*32"):
            summary.summarize([1], [1 << 40])
        assert summary.total == 0


def test_quantile_is_exact_while_small_and_keeps_the_ends():
    summary = Quantile(200)
    summary.summarize([5.0, 1.0, 3.0, 2.0, 4.0])
    assert [summary.estimate(rank).value for rank in (0, 0.2, 0.21, 0.5, 0.8, 1)] == [1, 1, 2, 3, 4, 5]
    summary.summarize(np.arange(100_000))
    assert summary.estimate(0.0).value == 0
    assert summary.estimate(1.0).value == 99_999


def test_quantile_questions_that_cannot_be():
    summary = Quantile()
    with pytest.raises(BadQuestion, match="no values"):
        summary.estimate(0.5)
    summary.summarize([1.0])
    for rank in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadQuestion, match="rank"):
            summary.estimate(rank)


def test_distinct_does_not_count_twice():
    summary = Distinct(12, seed=1)
    for _ in range(3):
        summary.summarize(np.arange(5000))
    bounds = summary.estimate()
    assert bounds.lower <= 5000 <= bounds.upper
    assert bounds.upper - bounds.lower < 500
    assert summary.total == 15_000


def test_distinct_stays_possible_when_tiny():
    summary = Distinct(4)
    assert summary.estimate().upper == 0
    summary.summarize(["a"])
    assert summary.estimate().lower == summary.estimate().upper == 1


def test_top_is_complete_and_ordered():
    """The heavy keys are there, by upper bound, equals by key; nothing outside has more than the last of them."""
    rng = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, 2001)
    values = rng.choice(2000, 50_000, p=weights / weights.sum())
    summary = Frequent(lg_k=8)
    summary.summarize(values)
    top = summary.top(20)
    assert [key for key, _ in top][:3] == [key for key, _ in Counter(values.tolist()).most_common(3)]
    assert [(-bounds.upper, key) for key, bounds in top] == sorted((-bounds.upper, key) for key, bounds in top)
    truth = np.bincount(values, minlength=2000)
    outside = np.setdiff1d(np.arange(2000), [key for key, _ in top])
    assert truth[outside].max() <= top[-1][1].upper
    assert all(bounds.lower <= truth[int(key)] <= bounds.upper for key, bounds in top)
    assert len(summary.top(5)) == 5
    assert Frequent().top(3) == []
    with pytest.raises(BadQuestion):
        summary.top(-1)


def test_frequent_says_when_it_is_too_small():
    small = Frequent(lg_k=3)
    small.summarize(np.arange(50))
    assert small.confidence() == 1.0 or small._error() > 2
    small.summarize(np.arange(2000))
    assert small._error() > 0.05 * small.total
    assert small.confidence() == 0.0


def test_sizes_that_cannot_be():
    for build in (lambda: Sample(0), lambda: Sample(1 << 25), lambda: Quantile(7), lambda: Quantile(1 << 16)):
        with pytest.raises(BadSize):
            build()
    for lg_k in (-1, 2, 27):
        with pytest.raises(BadSize):
            Distinct(lg_k)
        with pytest.raises(BadSize):
            Frequent(lg_k)


@pytest.mark.parametrize("keys", [[*range(25)], [str(n) for n in range(25)]], ids=["integers", "strings"])
def test_bounds_hold_after_every_key_was_evicted(keys):
    """Such a sketch counts as empty for DataSketches, which then forgets its error."""

    def emptied() -> Frequent:
        summary = Frequent(lg_k=5)
        summary.summarize(keys)
        assert summary.top(1) == []
        return summary

    whole = Frequent(lg_k=5)
    whole.add(emptied())
    again = from_bytes(whole.to_bytes())
    assert isinstance(again, Frequent)
    for summary in (whole, again):
        assert summary.total == 25
        assert summary.estimate(keys[0]) == Estimate(0.0, 0.0, 1.0)
    again.summarize([keys[0]] * 40)
    again.add(emptied())
    last = from_bytes(again.to_bytes())
    assert isinstance(last, Frequent)
    for one in (again, last):
        assert one.total == 90
        found = one.estimate(keys[0])
        assert found.lower <= 42 <= found.upper
        assert found.lower <= found.value <= found.upper
    assert last.estimates(keys).upper.tolist() == again.estimates(keys).upper.tolist()
