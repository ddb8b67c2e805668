"""Estimates from samples: how often the intervals hold, and what they say where little or everything is known."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from promising.errors import BadQuestion, Overflow
from promising.query.aggregate.aggregates import Aggregate, Groups
from promising.query.aggregate.confidence import count_bounds
from promising.query.aggregate.estimators import Estimated, Sample, estimate
from promising.query.kernels.limits import FEW, student
from promising.query.kernels.samples import quantiles
from promising.query.scalar.types import ARROW, Kind
from tests.conftest import NO_JIT
from tests.query.test_aggregates import near

TRIALS = 1000
CALLS = [
    Aggregate("count"),
    Aggregate("count", "float"),
    Aggregate("sum", "float"),
    Aggregate("avg", "float"),
    Aggregate("median", "float"),
    Aggregate("quantile", "float", 0.9),
    Aggregate("sum", "int"),
    Aggregate("avg", "int"),
]
OF_FLOATS = CALLS[:6]
EVERY = [
    *CALLS,
    Aggregate("min", "float"),
    Aggregate("max", "string"),
    Aggregate("count_distinct", "int"),
    Aggregate("count_distinct", "string"),
]

LAWS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "uniform": lambda rng, size: rng.random(size),
    "normal": lambda rng, size: rng.normal(size=size),
    "lognormal": lambda rng, size: rng.lognormal(0, 1, size),
    "zipf": lambda rng, size: np.minimum(rng.zipf(3.5, size), 1000).astype(np.float64),
}
ZIPF = 1 / np.arange(1, 21) ** 1.5
"""Sizes of groups."""


class World:
    """A population of units; a share `passing` are rows of the answer. The first `worked` are worked exactly."""

    def __init__(
        self,
        law: str,
        size: int,
        passing: float = 1.0,
        worked: int = 0,
        shares: NDArray[Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        values = LAWS[law](self.rng, size)
        missing = self.rng.random(size) < 0.05
        self.size, self.worked, self.keyed = size, worked, shares is not None
        self.passes = self.rng.random(size) < passing
        self.floats = pa.array(values, mask=missing)
        self.ints = pa.array((values * 1000).astype(np.int64), mask=missing)
        self.keys = pa.array(self.rng.choice(1 if shares is None else len(shares), size, p=_normed(shares)))

    def rows(self, units: NDArray[np.int64], calls: Sequence[Aggregate]) -> Sample:
        """Those of these units that are rows of the answer."""
        taken = pa.array(units[self.passes[units]])
        floats, ints = self.floats.take(taken), self.ints.take(taken)
        strings = ints.cast(ARROW["string"]) if any(call.kind == "string" for call in calls) else None
        arguments = [{"float": floats, "int": ints, "string": strings, None: None}[call.kind] for call in calls]
        return Sample([self.keys.take(taken)] if self.keyed else [], arguments, len(taken))

    def exactly(self, units: NDArray[np.int64], calls: Sequence[Aggregate]) -> Groups:
        rows = self.rows(units, calls)
        groups = Groups(["int"] if self.keyed else [], calls)
        groups.add(rows.keys, rows.arguments, rows.rows)
        return groups

    def drawn(self, draws: int) -> NDArray[np.int64]:
        return self.worked + self.rng.choice(self.size - self.worked, draws, replace=False, shuffle=False)


def _normed(shares: NDArray[Any] | None) -> NDArray[Any]:
    return np.ones(1) if shares is None else shares / shares.sum()


@dataclass
class Tally:
    """Of many trials, by aggregate and group: how often it was seen, and how often the truth lay outside its bounds."""

    seen: NDArray[np.int64]
    under: NDArray[np.int64]
    over: NDArray[np.int64]
    truth: NDArray[np.float64]
    values: list[NDArray[np.float64]]  # of each trial, for the first group

    @property
    def share(self) -> NDArray[np.float64]:
        """Of trials in which the interval held."""
        return 1 - (self.under + self.over) / self.seen


def trials(world: World, calls: Sequence[Aggregate], draws: int, confidence: float = 0.95) -> Tally:
    result = world.exactly(np.arange(world.size), calls).result()
    truth = np.array([np.asarray(array, np.float64) for array in result.values])
    place_of = {key: i for i, key in enumerate(result.keys[0].to_pylist())} if world.keyed else {}
    part = world.exactly(np.arange(world.worked), calls)
    seen, under, over = (np.zeros(truth.shape, np.int64) for _ in range(3))
    tally = Tally(seen, under, over, truth, [])
    for _ in range(TRIALS):
        sample = world.rows(world.drawn(draws), calls)
        answer = estimate(part, sample, draws, world.size - world.worked, confidence)
        place = np.array([place_of[key] for key in answer.keys[0].to_pylist()]) if world.keyed else np.zeros(1, np.intp)
        for k in range(len(calls)):
            # A null bound is NaN here, and never missed.
            tally.under[k, place] += truth[k, place] < plain(answer.lower[k])
            tally.over[k, place] += truth[k, place] > plain(answer.upper[k])
        tally.seen[:, place] += 1
        tally.values.append(np.array([plain(value)[0] for value in answer.value]))
    return tally


def plain(array: pa.Array) -> NDArray[np.float64]:
    """As floats, NaN for null."""
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)


def named(calls: Sequence[Aggregate], shares: NDArray[np.float64]) -> dict[str, float]:
    return {f"{call.function}({call.kind or '*'})": float(share) for call, share in zip(calls, shares, strict=True)}


WORLDS: list[tuple[str, int, int, float, int]] = [  # law, units, draws, share that passes, worked exactly
    ("uniform", 100_000, 500, 0.95, 0),
    ("uniform", 100_000, 500, 0.2, 0),
    ("normal", 50_000, 500, 0.2, 10_000),
    ("normal", 5_000, 3_000, 0.5, 1_000),
    ("lognormal", 100_000, 500, 0.95, 0),
    ("lognormal", 100_000, 500, 0.2, 0),
    ("lognormal", 20_000, 2_000, 0.3, 5_000),
    ("lognormal", 60_000, 20_000, 0.5, 20_000),
    ("zipf", 50_000, 5_000, 0.5, 10_000),
]


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize(("law", "units", "draws", "passing", "worked"), WORLDS)
def test_intervals_hold_as_often_as_they_say(law: str, units: int, draws: int, passing: float, worked: int):
    """In 93 to 99 % of trials where 95 is asked for; and counts and sums are right on the average."""
    calls = OF_FLOATS if not worked else CALLS
    if law == "zipf":  # half of the values are 1: where that is so, a quantile is never missed
        calls = [call for call in calls if call.function not in ("median", "quantile")]
    tally = trials(World(law, units, passing, worked, seed=1), calls, draws)
    shares = named(calls, tally.share[:, 0])
    assert {name: share for name, share in shares.items() if not 0.93 <= share <= 0.99} == {}
    values = np.array(tally.values)
    off = (values.mean(axis=0) - tally.truth[:, 0]) / (values.std(axis=0) / math.sqrt(TRIALS))
    straight = [k for k, call in enumerate(calls) if call.function in ("count", "sum")]
    assert np.abs(off[straight]).max() < 4


@pytest.mark.parametrize("law", ["uniform", "normal", "lognormal"])
def test_intervals_of_few_hits_are_honest(law: str):
    """About 10 hits: wider than they need be is well, narrower is not."""
    shares = named(OF_FLOATS, trials(World(law, 100_000, 0.02, seed=2), OF_FLOATS, 500).share[:, 0])
    assert {name: share for name, share in shares.items() if share < 0.93} == {}


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize("law", ["uniform", "lognormal"])
def test_intervals_of_groups(law: str):
    """Groups whose sizes are Zipf's, a fifth of the rows worked exactly: from a thousand hits down to a few."""
    world = World(law, 50_000, 0.5, 10_000, ZIPF, seed=3)
    tally = trials(world, OF_FLOATS, 5_000)
    expected = tally.truth[0] / world.size * 5_000
    for low, high in ((30, 10_000), (0, 30)):
        among = (expected >= low) & (expected < high)
        assert among.sum() >= 3
        seen, missed = tally.seen[:, among].sum(axis=1), (tally.under + tally.over)[:, among].sum(axis=1)
        shares = 1 - missed / seen
        most = 0.99 if low else 1.0
        assert {n: s for n, s in named(OF_FLOATS, shares).items() if not 0.93 <= s <= most} == {}


def test_the_confidence_asked_for_is_the_one_given_on_both_sides():
    """80 %: a tenth of the trials is missed on either side."""
    tally = trials(World("normal", 50_000, 0.6, seed=4), OF_FLOATS, 2_000, 0.8)
    for side in (tally.under, tally.over):
        shares = named(OF_FLOATS, side[:, 0] / TRIALS)
        assert {name: share for name, share in shares.items() if not 0.07 <= share <= 0.13} == {}


def test_limits_of_a_count_by_enumeration():
    """Every number of marked units, every number of hits with its chance: no trials, no luck."""
    for population, draws in ((60, 17), (400, 100), (500, 450), (3000, 300)):
        lower, upper = count_bounds(np.arange(draws + 1), draws, population, 0.95)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) >= 0).all()
        for marked in range(0, population + 1, max(1, population // 60)):
            hits, chance = _hypergeometric(population, marked, draws)
            held = chance[(lower[hits] <= marked) & (marked <= upper[hits])].sum()
            assert held >= 0.94, (population, draws, marked, held)


@pytest.mark.kernel
def test_limits_of_few_hits_are_the_exact_ones():
    population, draws, tail = 60, 17, 0.025
    lower, upper = count_bounds(np.arange(draws + 1), draws, population, 1 - 2 * tail)
    possible: dict[int, list[int]] = {h: [] for h in range(draws + 1)}
    for marked in range(population + 1):
        hits, chance = _hypergeometric(population, marked, draws)
        for h in hits:
            if chance[hits <= h].sum() > tail and chance[hits >= h].sum() > tail:
                possible[int(h)].append(marked)
    assert [(k[0], k[-1]) for k in possible.values()] == list(zip(lower.tolist(), upper.tolist(), strict=True))


@pytest.mark.kernel
def test_limits_of_a_count_in_huge_populations():
    """Pairs of rows: the law is then binomial, and for few hits Poisson's with limits that tables have."""
    draws, population = 100_000, 10**15
    lower, upper = count_bounds(np.array([0, 1, 5, 10, 99_999]), draws, population, 0.95)
    scale = population / draws
    assert np.allclose(upper[:4] / scale, [3.689, 5.572, 11.668, 18.390], rtol=1e-3)
    assert np.allclose(lower[1:4] / scale, [0.0253, 1.6235, 4.7954], rtol=2e-3)
    assert lower[0] == 0
    assert population - lower[4] == pytest.approx(5.572 * scale, rel=1e-3)


def _hypergeometric(population: int, marked: int, draws: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    hits = np.arange(max(0, draws - population + marked), min(draws, marked) + 1)
    every = math.comb(population, draws)
    chance = [math.comb(marked, int(h)) * math.comb(population - marked, draws - int(h)) / every for h in hits]
    return hits, np.array(chance)


@pytest.mark.kernel
def test_student_quantiles():
    """Against tables."""
    for z, freedom, due in ((1.959964, 2, 4.303), (1.959964, 5, 2.571), (1.959964, 30, 2.042), (2.575829, 10, 3.169)):
        assert student(z, float(freedom)) == pytest.approx(due, rel=0.02)


def test_distinct_values_are_bounded_and_guessed_well():
    """All different, few and many times each, and in between; with a part worked exactly."""
    rng = np.random.default_rng(6)
    population, draws, worked = 20_000, 2_000, 2_000
    for values, error in ((np.arange(22_000), 0.1), (rng.integers(0, 50, 22_000), 0.0), (rng.zipf(1.5, 22_000), 0.6)):
        rest = rng.permutation(np.arange(worked, len(values)))
        call = Aggregate("count_distinct", "int")
        part = Groups([], [call])
        part.add([], [pa.array(values[:worked])], worked)
        hits = values[rest[:draws]]
        answer = estimate(part, Sample([], [pa.array(hits)], draws), draws, population)
        value, lower, upper = (bound[0][0].as_py() for bound in (answer.value, answer.lower, answer.upper))
        truth, seen = len(np.unique(values)), len(np.unique([*values[:worked], *hits]))
        assert lower == seen <= value <= upper <= seen + population - draws
        assert lower <= truth <= upper
        assert abs(value - truth) <= error * truth


def small_world(seed: int = 0) -> tuple[World, list[Aggregate]]:
    return World("lognormal", 60 if NO_JIT else 600, 0.7, 0, ZIPF, seed=seed), EVERY


def as_rows(answer: Estimated, bound: str) -> list[tuple[Any, ...]]:
    arrays = [*answer.keys, *getattr(answer, bound)]
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


@pytest.mark.kernel
@pytest.mark.parametrize("keyed", [False, True])
def test_nothing_left_to_sample_is_exact(keyed: bool):
    """Population 0; or all of it drawn: then the sample is simply the other part."""
    world, calls = small_world()
    world.keyed = keyed
    every, half = np.arange(world.size), world.size // 2
    whole = world.exactly(every, calls)
    result = whole.result()
    due = list(zip(*(array.to_pylist() for array in (*result.keys, *result.values)), strict=True))
    none = estimate(whole, world.rows(every[:0], calls), 0, 0)
    part = world.exactly(every[:half], calls)
    drawn = estimate(part, world.rows(every[half:], calls), world.size - half, world.size - half)
    for answer in (none, drawn):
        assert answer.exact
        assert as_rows(answer, "lower") == as_rows(answer, "value") == as_rows(answer, "upper")
        for mine, other in zip(as_rows(answer, "value"), due, strict=True):
            assert all(map(near, mine, other)), f"{mine} where {other} is due"
    assert none.hits.sum() == 0
    assert drawn.hits.sum() == world.passes[half:].sum()
    assert [array.type for array in drawn.lower] == [ARROW[call.result_kind] for call in calls]


@pytest.mark.kernel
@pytest.mark.parametrize("keyed", [False, True])
def test_without_draws_the_exact_part_is_all_there_is(keyed: bool):
    world, calls = small_world()
    world.keyed = keyed
    part = world.exactly(np.arange(world.size), calls)
    answer = estimate(part, world.rows(np.arange(0), calls), 0, 1000)
    assert not answer.exact
    assert answer.hits.tolist() == [0] * part.size
    for call, exact, value, lower, upper in zip(
        calls, part.result().values, answer.value, answer.lower, answer.upper, strict=True
    ):
        assert all(map(near, value.to_pylist(), exact.to_pylist())), call
        if call.function in ("count", "count_distinct"):
            assert lower.equals(exact)
            assert upper.to_pylist() == [count + 1000 for count in exact.to_pylist()]
        elif call.function == "min":
            assert (lower.null_count, upper.equals(exact)) == (part.size, True)
        elif call.function == "max":
            assert (lower.equals(exact), upper.null_count) == (True, part.size)
        else:
            assert (lower.null_count, upper.null_count) == (part.size, part.size), call


@pytest.mark.kernel
def test_nothing_known_at_all():
    answer = estimate(Groups([], EVERY), Sample([], [_empty(call) for call in EVERY], 0), 0, 7)
    for call, value, lower, upper in zip(EVERY, answer.value, answer.lower, answer.upper, strict=True):
        counted = call.function in ("count", "count_distinct")
        assert (value[0].as_py(), lower[0].as_py(), upper[0].as_py()) == ((0, 0, 7) if counted else (None, None, None))
    keyed = estimate(Groups(["string"], EVERY), Sample([_empty(EVERY[-1])], [_empty(call) for call in EVERY], 0), 5, 7)
    assert as_rows(keyed, "value") == []


def _empty(call: Aggregate) -> pa.Array | None:
    return None if call.kind is None else pa.array([], ARROW[call.kind])


@pytest.mark.kernel
def test_groups_of_the_exact_part_come_first_then_new_ones_and_nothing_is_added():
    calls = [
        Aggregate("count"),
        Aggregate("min", "string"),
        Aggregate("median", "int"),
        Aggregate("count_distinct", "string"),
    ]
    words = ["b", None, "a", "b", "c", "a", None, "zz", "c", "d"]
    numbers = [1, 2, 3, None, 5, 6, 7, 8, 9, None]
    texts = ["x", "y", None, "w", "v", "y", "y", "u", "t", "s"]

    def arrays(start: int, stop: int) -> tuple[list[pa.Array], list[pa.Array | None]]:
        key, text = (pa.array(column[start:stop], ARROW["string"]) for column in (words, texts))
        return [key, pa.array([True] * (stop - start))], [None, text, pa.array(numbers[start:stop], ARROW["int"]), text]

    part = Groups(["string", "bool"], calls)
    part.add(*arrays(0, 4), 4)
    before = part.result()
    answers = [estimate(part, Sample(*arrays(4, 10), 6), 8, 100) for _ in range(2)]
    after = part.result()
    assert all(map(pa.Array.equals, (*before.keys, *before.values), (*after.keys, *after.values)))
    for answer in answers:
        assert answer.keys[0].to_pylist() == ["b", None, "a", "c", "zz", "d"]
        assert answer.hits.tolist() == [0, 1, 1, 2, 1, 1]
        assert answer.value[0].to_pylist() == [2, 1 + 12, 1 + 12, 25, 12, 12]
        assert answer.value[1].to_pylist() == ["w", "y", "y", "t", "u", "s"]
        assert answer.value[2].to_pylist()[3:] == [7, 8, None]
        assert answer.lower[3].to_pylist() == [2, 1, 1, 2, 1, 1]
    part.add(*arrays(4, 10), 6)
    assert part.result().keys[0].to_pylist() == ["b", None, "a", "c", "zz", "d"]
    assert part.result().values[0].to_pylist() == [2, 2, 2, 2, 1, 1]
    assert part.result().values[2].to_pylist() == [1, 4.5, 4.5, 7, 8, None]
    assert part.result().values[3].to_pylist() == [2, 1, 1, 2, 1, 1]


@pytest.mark.kernel
def test_counts_are_clipped_by_what_was_seen_and_by_what_is_left():
    for rows, draws, population in itertools.product((0, 1, 5, 60, 99), (100,), (101, 103, 120, 5000)):
        part = Groups([], [Aggregate("count")])
        part.add([], [None], 7)
        answer = estimate(part, Sample([], [None], rows), draws, population)
        lower, value, upper = (bound[0][0].as_py() for bound in (answer.lower, answer.value, answer.upper))
        assert 7 + rows <= lower <= value <= upper <= 7 + rows + population - draws
        assert value == 7 + round(rows * population / draws)


@pytest.mark.kernel
def test_what_few_hits_cannot_tell_is_not_said():
    calls = [Aggregate("sum", "float"), Aggregate("avg", "float"), Aggregate("median", "float")]

    def known(values: list[float | None], draws: int = 1000, worked: Sequence[float] = ()) -> list[bool]:
        column, other = pa.array(values, pa.float64()), pa.array(worked, pa.float64())
        part = Groups([], calls)
        part.add([], [other] * 3, len(other))
        answer = estimate(part, Sample([], [column] * 3, len(values)), draws, 10**6)
        lower, upper = ([bound.null_count == 0 for bound in side] for side in (answer.lower, answer.upper))
        assert lower == upper
        return lower

    assert known([]) == [False, False, False]
    assert known([None, None]) == [False, False, False]
    assert known([3.0]) == [True, False, False]
    assert known([3.0, 4.0]) == [True, True, False]
    assert known([3.0] * 50) == [True, False, True]
    assert known([3.0] * FEW) == [True, True, True]
    assert known([3.0], 1) == [False, False, False]
    assert known([], 1000, range(50)) == [False, False, False]
    assert known([3.0], 1000, range(50)) == [True, False, False]
    assert known([3.0, 4.0], 1000, range(50))[:2] == [True, True]
    assert known([math.inf, 1.0, 2.0] * 20) == [False, False, True]
    assert known([math.nan, 1.0, 2.0] * 20)[:2] == [False, False]
    assert known([0.1 * k for k in range(20)]) == [True, True, True]


@pytest.mark.kernel
def test_equal_values_leave_room_for_roundings():
    values = pa.array([0.1] * 300)
    calls = [Aggregate("avg", "float"), Aggregate("sum", "float")]
    whole = Groups([], calls)
    whole.add([], [pa.array([0.1] * 977)] * 2, 977)
    answer = estimate(Groups([], calls), Sample([], [values] * 2, 300), 300, 977)
    for value, lower, upper in zip(whole.result().values, answer.lower, answer.upper, strict=True):
        assert lower[0].as_py() <= value[0].as_py() <= upper[0].as_py()
        assert upper[0].as_py() - lower[0].as_py() < 1e-9


@pytest.mark.kernel
def test_sums_of_integers_stay_exact_and_within_64_bits():
    most = (1 << 63) - 1
    call = Aggregate("sum", "int")

    def told(worked: list[int], drawn: list[int], population: int) -> tuple[int, int, int]:
        part = Groups([], [call])
        for value in worked:
            part.add([], [pa.array([value])], 1)
        answer = estimate(part, Sample([], [pa.array(drawn, pa.int64())], len(drawn)), len(drawn), population)
        lower, value, upper = (bound[0][0].as_py() for bound in (answer.lower, answer.value, answer.upper))
        return lower, value, upper

    odd = (1 << 60) + 1  # not a float
    lower, value, upper = told([odd], [1, 2, 3] * 50, 300)
    assert value == odd + 600
    assert odd < lower < value < upper < odd + 1000
    assert told([most, most, -most], [5, -5] * 60, 240)[1:] == (most, most)
    assert told([-most, -most], [most, most], 2) == (0, 0, 0)
    assert told([most, most], [-most, -most, -most + 1], 4)[1] < 0
    assert told([], [most // 2, most // 3] * 60, 10**6)[1:] == (most, most)
    assert told([], [-most // 2, -most // 3] * 60, 10**6)[:2] == (-most - 1, -most - 1)
    with pytest.raises(Overflow, match="does not fit 64 bits"):
        told([most], [most], 1)


@pytest.mark.kernel
@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 0.77, 1.0])
def test_quantiles_of_equal_weights_are_the_usual_ones(at: float):
    """Whether the values are known, drawn, or some of each; bounds are values, in order around the quantile."""
    rng = np.random.default_rng(8)
    for size in (1, 2, 3, 10, 41):
        values = rng.integers(0, 12, size).astype(np.float64)
        for known in range(size + 1):
            starts, drawn_starts = np.array([0, known]), np.array([0, size - known])
            value, lower, upper = np.empty(1), np.empty(1), np.empty(1)
            a, b = np.sort(values[:known]), np.sort(values[known:])
            quantiles(starts, a, drawn_starts, b, 1.0, 1.96, float(size - known + 5), at, value, lower, upper)
            assert value[0] == pytest.approx(np.quantile(values, at))
            assert not lower[0] > value[0]
            assert not upper[0] < value[0]
            if known == 0 and size > 2:
                alone = estimate(
                    Groups([], [Aggregate("quantile", "float", at)]),
                    Sample([], [pa.array(values)], size),
                    size + 5,
                    10**5,
                )
                assert alone.value[0][0].as_py() == pytest.approx(np.quantile(values, at))


@pytest.mark.kernel
def test_quantiles_put_nan_last():
    """As the exact ones do. A bound that is not a number is none."""
    call = Aggregate("quantile", "float", 0.9)
    values = pa.array([*map(float, range(40)), *[math.nan] * 20])
    part = Groups([], [call])
    part.add([], [values], 60)
    answer = estimate(part, Sample([], [values], 60), 60, 600)
    assert math.isnan(answer.value[0][0].as_py())
    assert (answer.lower[0].null_count, answer.upper[0].null_count) == (1, 1)


@pytest.mark.kernel
def test_memory_that_cannot_be_written_is_read():
    """Arrays that came over the wire are read-only."""
    table = pa.table(
        {
            "k": pa.array(["a", "b", None, "a"], ARROW["string"]),
            "f": pa.array([1.0, 2.0, 3.0, 4.0]),
            "i": pa.array([1, 2, 3, 4]),
            "s": pa.array(["x", "y", "z", "w"], ARROW["string"]),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    received = pa.ipc.open_stream(sink.getvalue()).read_all()
    columns = {name: received.column(name).chunk(0) for name in received.column_names}
    assert not columns["f"].buffers()[1].is_mutable
    by_kind = {None: None, "float": columns["f"], "int": columns["i"], "string": columns["s"]}
    arguments = [by_kind[call.kind] for call in EVERY]
    kinds: list[Kind] = ["string"]
    for keyed in (0, 1):
        keys = [columns["k"]][:keyed]
        part = Groups(kinds[:keyed], EVERY)
        part.add(keys, arguments, 4)
        answer = estimate(part, Sample(keys, arguments, 4), 4, 8)
        assert answer.value[0].to_pylist() == ([6, 3, 3] if keyed else [12])
        assert part.result().values[6].to_pylist() == ([5, 2, 3] if keyed else [10])


def test_questions_without_an_answer_are_refused():
    part = Groups([], [Aggregate("count")])
    for rows, draws, population in ((3, 2, 10), (0, 11, 10), (-1, 2, 10), (0, -1, 10)):
        with pytest.raises(BadQuestion, match=f"{rows} rows among {draws} draws out of {population}"):
            estimate(part, Sample([], [None], rows), draws, population)
    for confidence in (0.0, 1.0, 95.0, math.nan):
        with pytest.raises(BadQuestion, match="confidence"):
            estimate(part, Sample([], [None], 1), 2, 10, confidence)


def test_hits_are_counted_by_group():
    world, calls = small_world(5)
    sample = world.rows(np.arange(200), calls)
    answer = estimate(Groups(["int"], calls), sample, 200, 600)
    due = Counter(sample.keys[0].to_pylist())
    assert dict(zip(answer.keys[0].to_pylist(), answer.hits.tolist(), strict=True)) == due
