"""WEIGHTED answers are probability samples: chi-square tests against the law they promise, over many seeds.

Every test is fixed by its seeds. The limits are those of a normal law at `LIMIT` standard deviations, on both sides (a
sample that is too even is no random sample), so that all tests together would fail a right engine less than once in
10,000 other choices of seeds.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np
import pytest

from tests.query.stores import SECOND, Row, Stores, rows_of, stores, tuples

LIMIT = 4.9
"""Two-sided chance of 1e-6."""

PAIRS = "SELECT a.id, b.id FROM a, b WHERE a.k = b.k"
BY_PAIRS = "WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"
BY_TUPLES = "WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(k)"


def normal(chi_square: float, freedom: int) -> float:
    """How many standard deviations a chi-square is off, by Wilson and Hilferty."""
    spread = 2 / (9 * freedom)
    return (math.cbrt(chi_square / freedom) - (1 - spread)) / math.sqrt(spread)


def misfit(seen: Mapping[Hashable, float], expected: Mapping[Hashable, float], correction: float = 1.0) -> float:
    """Pearson's chi-square over cells whose sizes add up to one whole, as a normal deviate.

    Cells are put together, the smallest first, until each expects at least 8. correction: of the variance, for draws
    without replacement.
    """
    assert seen.keys() <= expected.keys(), "something was drawn that cannot be"
    cells: list[tuple[float, float]] = []
    want = have = 0.0
    for cell in sorted(expected, key=lambda c: (expected[c], repr(c))):
        want, have = want + expected[cell], have + seen.get(cell, 0)
        if want >= 8:
            cells.append((want, have))
            want = have = 0.0
    if want:
        last = cells.pop()
        cells.append((last[0] + want, last[1] + have))
    assert len(cells) > 1
    return normal(sum((have - want) ** 2 / want for want, have in cells) / correction, len(cells) - 1)


def joined(n: int, keys: int, *, strings: bool = False, structure: str = "adaptive") -> Stores:
    made = stores(structure=structure, strings=strings)
    for number, name in enumerate(("a", "b")):
        made.ingest(name, tuples(n, keys, seed=31 + number, exponent=0.8, strings=strings))
    return made


def samples(made: Stores, sql: str, seeds: Iterable[int]) -> list[list[Row]]:
    return [rows_of(made.session.query(sql, seed=seed)) for seed in seeds]


def key_of(made: Stores) -> Callable[[Row], Hashable]:
    a = made.columns("a")
    of_id = dict(zip(a["id"].tolist(), a["k"].tolist(), strict=True))
    return lambda row: of_id[row[0]]


def even(samples: list[list[Row]], population: set[Row], cell: Callable[[Row], Hashable]) -> float:
    """How far samples of one size are off simple random ones without replacement, by cells of the population."""
    size, whole = len(samples[0]), len(population)
    assert {len(s) for s in samples} == {size} and all(len(set(s)) == size for s in samples)
    sizes = Counter(map(cell, population))
    expected = {c: len(samples) * size * n / whole for c, n in sizes.items()}
    seen = Counter(cell(row) for sample in samples for row in sample)
    return misfit(seen, expected, (whole - size) / (whole - 1))


@pytest.mark.parametrize(("prefix", "seeds"), [(100, 250), (500, 100), (1000, 60), (2000, 40)])
def test_a_prefix_of_a_weighted_join_is_a_simple_random_sample_of_all_pairs(prefix, seeds):
    made = joined(400, 40)
    population = made.pairs()
    assert len(population) > 2 * prefix
    drawn = samples(made, f"{PAIRS} {BY_PAIRS} LIMIT {prefix}", range(seeds))
    key = key_of(made)
    assert abs(even(drawn, population, lambda row: row)) < LIMIT
    assert abs(even(drawn, population, key)) < LIMIT
    assert abs(even(drawn, population, lambda row: row[0])) < LIMIT
    assert abs(even(drawn, population, lambda row: row[1])) < LIMIT


@pytest.mark.parametrize("prefix", [100, 1000])
def test_the_number_of_pairs_of_a_key_varies_as_in_a_simple_random_sample(prefix):
    """Equal chances alone would allow to take a key whole or not at all."""
    made = joined(400, 40)
    population = made.pairs()
    key = key_of(made)
    seeds = 150 if prefix == 100 else 60
    drawn = samples(made, f"{PAIRS} {BY_PAIRS} LIMIT {prefix}", range(1000, 1000 + seeds))
    whole = len(population)
    for wanted, n in Counter(map(key, population)).most_common(12):
        share = n / whole
        variance = prefix * share * (1 - share) * (whole - prefix) / (whole - 1)
        counts = np.array([sum(key(row) == wanted for row in sample) for sample in drawn])
        assert abs(normal(float(((counts - prefix * share) ** 2).sum()) / variance, seeds)) < LIMIT


@pytest.mark.deep("statistics over many draws")
@pytest.mark.parametrize(
    ("strings", "structure", "window"),
    [(True, "adaptive", None), (False, "none", None), (False, "time", 17), (True, "grid", 17), (False, "adaptive", 17)],
)
def test_it_is_one_with_strings_windows_and_every_structure(strings, structure, window):
    made = joined(600, 60, strings=strings, structure=structure)
    population = made.pairs(window)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    drawn = samples(made, f"{PAIRS} {BY_PAIRS} {within} LIMIT 200", range(80))
    assert len(population) > 600
    assert abs(even(drawn, population, lambda row: row)) < LIMIT
    assert abs(even(drawn, population, key_of(made))) < LIMIT


def test_conditions_leave_a_simple_random_sample_of_the_pairs_that_meet_them():
    made = joined(400, 40)
    population = made.pairs(None, lambda x, y: x[3] > y[3] and y[4] > 3)
    drawn = samples(made, f"{PAIRS} AND a.price > b.price AND b.n > 3 {BY_PAIRS} LIMIT 200", range(100))
    assert abs(even(drawn, population, lambda row: row)) < LIMIT
    assert abs(even(drawn, population, key_of(made))) < LIMIT


@pytest.mark.deep("statistics over many draws")
@pytest.mark.parametrize("window", [None, 17])
@pytest.mark.parametrize("n", [100, 700])
def test_a_weighted_selection_is_uniform_over_tuples(n, window):
    made = joined(n, 40)
    population = made.selected(window)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    drawn = samples(made, f"SELECT id FROM a {BY_TUPLES} {within} LIMIT 30", range(400))
    assert abs(even(drawn, population, lambda row: row)) < LIMIT
    assert abs(even(drawn, population, key_of(made))) < LIMIT


def test_pairs_that_follow_each_other_are_independent():
    """In a simple random sample a pair of neighbours has the same key as often as any two pairs."""
    made = joined(400, 40)
    population = made.pairs()
    key = key_of(made)
    sizes = np.array(list(Counter(map(key, population)).values()), float)
    whole = sizes.sum()
    same = float((sizes * (sizes - 1)).sum() / (whole * (whole - 1)))
    drawn = samples(made, f"{PAIRS} {BY_PAIRS} LIMIT 500", range(500, 560))
    for apart in (1, 2, 7):
        hits = np.array([np.mean([key(x) == key(y) for x, y in zip(s, s[apart:], strict=False)]) for s in drawn])
        assert abs(hits.mean() - same) < LIMIT * hits.std(ddof=1) / math.sqrt(len(hits))


# --- chances ---------------------------------------------------------------------------------------------------------


def granularity(made: Stores, stream: str) -> dict[int, int]:
    """Of each tuple, by its id, as the summary's cells have it."""
    columns = made.columns(stream)
    found = made.session.regions(f"by_{stream}", sorted(set(columns["k"].tolist())))
    times = columns["ts"]
    out = np.zeros(len(times), int)
    for region in found:
        out[(times >= region.start) & (times < region.end)] = region.granularity
    assert (out > 0).all()
    return dict(zip(columns["id"].tolist(), out.tolist(), strict=True))


def first_rows(made: Stores, sql: str, seeds: int) -> Counter[Row]:
    return Counter(sample[0] for sample in samples(made, f"{sql} LIMIT 1", range(seeds)))


def by(cell: Callable[[Row], Hashable], weights: Mapping[Row, float]) -> dict[Hashable, float]:
    out: dict[Hashable, float] = {}
    for row, weight in weights.items():
        out[cell(row)] = out.get(cell(row), 0.0) + weight
    return out


def fits(seen: Counter[Row], weights: Mapping[Row, float], cell: Callable[[Row], Hashable]) -> float:
    """How far the first rows of many answers are off chances in proportion to weights."""
    whole, draws = sum(weights.values()), seen.total()
    expected = {c: draws * w / whole for c, w in by(cell, weights).items()}
    return misfit(by(cell, seen), expected)


@pytest.mark.deep("statistics over many draws")
@pytest.mark.parametrize("fade", [0.3, 0.5])
def test_fade_gives_a_pair_its_factor_for_every_step_back_on_either_side(fade):
    made = joined(300, 30)
    of_a, of_b = granularity(made, "a"), granularity(made, "b")
    assert len(set(of_a.values())) >= 3
    weights = {row: fade ** (of_a[row[0]] + of_b[row[1]] - 2) for row in made.pairs()}
    seen = first_rows(made, f"{PAIRS} {BY_PAIRS} FADE FACTOR {fade}", 700)
    assert abs(fits(seen, weights, lambda row: (of_a[row[0]], of_b[row[1]]))) < LIMIT
    assert abs(fits(seen, weights, key_of(made))) < LIMIT
    plain = {row: 1.0 for row in weights}
    assert fits(seen, plain, lambda row: (of_a[row[0]], of_b[row[1]])) > LIMIT, "and that is not what it was without"


@pytest.mark.deep("statistics over many draws")
def test_a_half_life_gives_a_pair_its_factor_by_the_ages_of_both_tuples():
    made = joined(300, 30)
    columns = made.window(None, "a", "b")
    now = max(int(c["ts"].max()) for c in columns)
    lives = [{i: (now - t) * 4 // (20 * SECOND) / 4 for i, t in zip(c["id"], c["ts"], strict=True)} for c in columns]
    weights = {row: 0.5 ** (lives[0][row[0]] + lives[1][row[1]]) for row in made.pairs()}
    seen = first_rows(made, f"{PAIRS} {BY_PAIRS} FADE HALF LIFE 20 SECONDS", 700)
    assert abs(fits(seen, weights, lambda row: (lives[0][row[0]], lives[1][row[1]]))) < LIMIT
    assert abs(fits(seen, weights, key_of(made))) < LIMIT
    assert fits(seen, dict.fromkeys(weights, 1.0), lambda row: lives[0][row[0]]) > LIMIT


@pytest.mark.deep("statistics over many draws")
def test_fade_gives_a_tuple_its_factor_for_every_step_back():
    made = joined(300, 30)
    of_a = granularity(made, "a")
    weights = {row: 0.5 ** (of_a[row[0]] - 1) for row in made.selected()}
    seen = first_rows(made, f"SELECT id FROM a {BY_TUPLES} FADE FACTOR 0.5", 700)
    assert abs(fits(seen, weights, lambda row: of_a[row[0]])) < LIMIT
    assert abs(fits(seen, weights, lambda row: row)) < LIMIT


@pytest.mark.deep("statistics over many draws")
def test_a_tuple_has_a_chance_in_proportion_to_a_preference_with_columns():
    made = joined(300, 30)
    a = made.columns("a")
    price = dict(zip(a["id"].tolist(), a["price"].tolist(), strict=True))
    key = key_of(made)
    seen = first_rows(made, f"{PAIRS} WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(b.k) * a.price", 700)
    weights = {row: price[row[0]] for row in made.pairs()}  # count * price, shared out among as many pairs
    assert abs(fits(seen, weights, lambda row: row[0])) < LIMIT
    assert abs(fits(seen, weights, key)) < LIMIT
    assert abs(fits(seen, weights, lambda row: row[1])) < LIMIT
