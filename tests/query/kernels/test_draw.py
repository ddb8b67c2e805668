"""Drawing: permutations that are bijective and as random as they say, and clocks that ring by the law of weights.

Chi-squares are judged by Wilson and Hilferty's normal deviate at `LIMIT`: a right kernel would fail any one of them
with fewer than one in 10^5 choices of keys, and all are fixed by their keys here.
"""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.query.kernels import draw as kernels
from promising.query.kernels.heap import heapify
from tests.conftest import NO_JIT

pytestmark = pytest.mark.kernel

LIMIT = 4.6
KEYS = 300 if NO_JIT else 10_000
"""Keys that a frequency is taken over."""
LAST = (1 << 63) - 1


def some_keys(n, seed=1):
    return np.random.default_rng(seed).integers(0, 1 << 64, n, dtype=np.uint64)


def deviate(seen, expected):
    """Pearson's chi-square of counts, as a normal deviate; cells are put together until each expects 8 or more."""
    assert math.isclose(sum(seen), sum(expected), rel_tol=1e-9)
    cells: list[tuple[float, float]] = []
    want = have = 0.0
    for one_wanted, one_seen in sorted(zip(expected, seen, strict=True), key=lambda cell: float(cell[0])):
        want, have = want + one_wanted, have + one_seen
        if want >= 8:
            cells.append((want, have))
            want = have = 0.0
    if want:
        last = cells.pop()
        cells.append((last[0] + want, last[1] + have))
    freedom = len(cells) - 1
    assert freedom > 0
    chi = sum((have - want) ** 2 / want for want, have in cells)
    spread = 2 / (9 * freedom)
    return ((chi / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def even(seen):
    """The deviate of counts that should all be alike."""
    return deviate(seen, np.full(len(seen), np.sum(seen) / len(seen)))


def permutation(n, key, first=0, count=None):
    out = np.full(n - first if count is None else count, -1, np.int64)
    kernels.permuted(first, n, np.uint64(key), out)
    return out


# --- words and times ---------------------------------------------------------------------------------------------


def test_mix_is_the_end_of_splitmix64():
    golden = 0x9E3779B97F4A7C15
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(kernels.mix(np.uint64(golden * i % (1 << 64)))) for i in (1, 2, 3)] == expected


@pytest.mark.parametrize("n", [1, 2, 3, 1000, (1 << 31) + 1, (1 << 32) - 1])
def test_a_word_is_reduced_to_its_share(n):
    words = [0, 1, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1, *some_keys(200).tolist()]
    assert [int(kernels.reduced(np.uint64(w), np.uint64(n))) for w in words] == [((w >> 32) * n) >> 32 for w in words]


@pytest.mark.parametrize("along", ["numbers", "keys"])
def test_rings_follow_the_exponential_law(along):
    n = KEYS
    if along == "numbers":
        times = np.array([kernels.ring(np.uint64(5), np.uint64(i)) for i in range(n)])
    else:
        times = np.array([kernels.ring(np.uint64(i), np.uint64(0)) for i in range(n)])
    assert (times >= 0).all() and np.isfinite(times).all()
    edges = -np.log1p(-np.arange(21) / 20.0001)
    edges[-1] = 1e9
    assert abs(even(np.histogram(times, edges)[0])) < LIMIT
    after = Counter(((times[1:] > math.log(2)) * 2 + (times[:-1] > math.log(2))).tolist())
    assert abs(even([after[i] for i in range(4)])) < LIMIT, "one says nothing of the next"


# --- permutations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(6))
def test_every_number_goes_to_a_place_of_its_own(block):
    for n in range(100 * block + 1, 100 * block + 101, 29 if NO_JIT else 1):
        for key in (0, 1, (1 << 64) - 1, 0x0123456789ABCDEF):
            assert sorted(permutation(n, key).tolist()) == list(range(n)), (n, key)


@pytest.mark.skipif(NO_JIT, reason="too many for plain Python")
@pytest.mark.parametrize("n", [65_536, 99_999, 100_000, 317 * 317 - 1, 317 * 317, 317 * 317 + 1])
def test_so_do_many(n):
    assert (np.bincount(permutation(n, n + 7), minlength=n) == 1).all()


@pytest.mark.parametrize("n", [10**6 + 3, (1 << 32) - 1, (1 << 32) + 1, (1 << 53) + 1, (1 << 62) - 1, 1 << 62])
def test_of_very_many_no_two_meet(n):
    count = 300 if NO_JIT else 30_000
    ends = np.concatenate((permutation(n, 9, 0, count), permutation(n, 9, n - count, count)))
    assert ends.min() >= 0 and ends.max() < n
    assert len(np.unique(ends)) == 2 * count
    assert abs(even(np.bincount((ends // -(-n // 16)), minlength=16))) < LIMIT


@pytest.mark.parametrize("n", [1, 2, 50, 128, 129, 500])
def test_a_stretch_of_a_permutation_is_part_of_it(n):
    whole = permutation(n, 77)
    for first, count in [(0, 0), (0, n), (n // 3, n - n // 3), (n - 1, 1)]:
        assert permutation(n, 77, first, count).tolist() == whole[first : first + count].tolist()
    assert [int(kernels.permute(i, n, np.uint64(77))) for i in range(n)] == whole.tolist()


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("apart", ["random", "consecutive"])
def test_all_permutations_of_a_few_are_alike(n, apart):
    keys = some_keys(KEYS, n) if apart == "random" else np.arange(KEYS, dtype=np.uint64)
    seen = Counter(tuple(permutation(n, k).tolist()) for k in keys)
    assert abs(even([seen[p] for p in permutations(range(n))])) < LIMIT


@pytest.mark.parametrize("n", [6, 17, 127, 128, 129, 130, 144, 200, 600])
@pytest.mark.parametrize("apart", ["random", "consecutive"])
def test_over_keys_every_place_is_as_likely(n, apart):
    keys = some_keys(KEYS, n) if apart == "random" else np.arange(KEYS, dtype=np.uint64)
    for at in (0, n // 2, n - 1):
        places = np.array([kernels.permute(at, n, k) for k in keys])
        assert abs(even(np.bincount(places, minlength=n))) < LIMIT, at


@pytest.mark.skipif(NO_JIT, reason="needs many keys")
@pytest.mark.parametrize("n", [20, 128, 129, 150, 1000, 100_000])
def test_over_keys_the_first_two_are_any_two(n):
    """Each pair alike: by the two places in twelve stretches each, and by how far one is from the other."""
    keys = some_keys(3 * KEYS, n)
    out = np.array([permutation(n, k, 0, 2) for k in keys])
    assert (out[:, 0] != out[:, 1]).all()
    stretch = np.minimum(out * 12 // n, 11)
    sizes = np.bincount(np.minimum(np.arange(n) * 12 // n, 11), minlength=12).astype(np.float64)
    chance = np.outer(sizes, sizes) - np.diag(sizes)
    seen = np.bincount(stretch[:, 0] * 12 + stretch[:, 1], minlength=144)
    assert abs(deviate(seen, chance.ravel() / chance.sum() * len(keys))) < LIMIT
    apart = (out[:, 1] - out[:, 0]) % n - 1
    assert abs(even(np.bincount(apart if n <= 1000 else apart * 500 // (n - 1)))) < LIMIT


@pytest.mark.skipif(NO_JIT, reason="needs many draws")
@pytest.mark.parametrize("n", [2000, 1 << 20])
def test_what_is_drawn_first_is_a_fair_sample(n):
    """The first tenth of one permutation, in stretches of the number line: without replacement less uneven by 0.9."""
    for key in some_keys(20):
        seen = np.bincount(permutation(n, key, 0, n // 10) * 20 // n, minlength=20)
        expected = n / 10 / 20
        chi = ((seen - expected) ** 2).sum() / expected / 0.9
        assert 2.5 < chi < 55.0  # of 19 degrees: less than 1 in 10^5 on each side


# --- draws by clocks ---------------------------------------------------------------------------------------------


class Draws:
    """Entries with units and weights, drawn from in slices."""

    def __init__(self, units, weight, seed, tie=None):
        n = len(units)
        self.units, self.weight = np.array(units, np.int64), np.array(weight, np.float64)
        self.tie = np.arange(n) * 7919 - 3 if tie is None else np.array(tie, np.int64)
        self.seed = np.uint64(seed)
        self.clocks, self.drawn = np.full(n, np.nan), np.zeros(n, np.int64)
        kernels.set_clocks(self.clocks, self.tie, self.units, self.weight, self.seed)
        self.heap, self.size = np.arange(n, dtype=np.int32), np.array([n])
        heapify(self.heap, n, self.clocks, self.tie)

    def draw(self, room, border=(-math.inf, LAST)):
        entries, numbers = np.full(room, -1, np.int32), np.full(room, -1, np.int64)
        columns = (self.clocks, self.tie, self.units, self.drawn, self.weight, self.seed)
        made = kernels.draw(self.heap, self.size, *columns, border[0], border[1], entries, numbers)
        assert (entries[made:] == -1).all() and (numbers[made:] == -1).all()
        return list(zip(entries[:made].tolist(), numbers[:made].tolist(), strict=True))


entries = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 1e-300, 0.25, 1.0, 1.0, 3.5])), max_size=12)


@given(entries, st.integers(0, (1 << 64) - 1), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_unit_comes_once_in_whatever_slices(given_entries, seed, rooms):
    units, weight = [u for u, _ in given_entries], [w for _, w in given_entries]
    whole = Draws(units, weight, seed).draw(sum(units) + 5)
    assert sorted(whole) == [(e, i) for e, n in enumerate(units) for i in range(n)]
    draws = Draws(units, weight, seed)
    parts: list[tuple[int, int]] = []
    while draws.size[0]:
        parts += draws.draw(rooms[len(parts) % len(rooms)])
    assert parts == whole
    assert draws.drawn.tolist() == units


@given(entries, st.integers(0, (1 << 64) - 1))
def test_without_weight_an_entry_comes_last_whole_and_by_its_tie(given_entries, seed):
    units, weight = [u for u, _ in given_entries], [w for _, w in given_entries]
    order = [e for e, _ in Draws(units, weight, seed, tie=-np.arange(len(units)) * 5).draw(sum(units))]
    rest = [e for e in reversed(range(len(units))) if weight[e] == 0.0 for _ in range(units[e])]
    assert order[len(order) - len(rest) :] == rest


@given(entries, st.integers(0, (1 << 64) - 1), st.integers(0, 40))
def test_draws_stop_at_a_border_and_go_on_when_it_moves(given_entries, seed, at):
    units, weight = [u for u, _ in given_entries], [w for _, w in given_entries]
    whole = Draws(units, weight, seed).draw(sum(units))
    probe = Draws(units, weight, seed)
    probe.draw(min(at, len(whole)))
    if not probe.size[0]:
        return
    top = probe.heap[0]
    border = (float(probe.clocks[top]), int(probe.tie[top]))
    draws = Draws(units, weight, seed)
    first = draws.draw(len(whole), border)
    assert first == whole[: len(first)]
    assert len(first) > min(at, len(whole)), "the border itself is drawn"
    if draws.size[0]:
        left = draws.heap[0]
        assert (-draws.clocks[left], draws.tie[left]) > (-border[0], border[1])
    assert first + draws.draw(len(whole)) == whole


def test_a_clock_is_an_exponential_time_at_the_rate_of_all_its_units():
    n = KEYS
    for units, weight in [(1, 1.0), (7, 1.0), (7, 0.125), (1 << 40, 2.0**-40)]:
        clocks = np.empty(n)
        ties = np.arange(n) * 3 - n
        kernels.set_clocks(clocks, ties, np.full(n, units), np.full(n, weight), np.uint64(99))
        edges = -np.log1p(-np.arange(21) / 20.0001) / (units * weight)
        edges[-1] = 1e9
        assert abs(even(np.histogram(-clocks, edges)[0])) < LIMIT
    kernels.set_clocks(clocks, ties, np.full(n, 3), np.zeros(n), np.uint64(99))
    assert (clocks == -np.inf).all()


@pytest.mark.parametrize("seeds", ["random", "consecutive"])
def test_the_first_draw_is_in_proportion_to_weight_times_units(seeds):
    units, weight = [1, 2, 3, 200, 5, 1, 4], [5.0, 1.0, 0.5, 0.01, 1.0, 0.0, 1e-9]
    keys = some_keys(KEYS, 8) if seeds == "random" else np.arange(KEYS)
    first = Counter(Draws(units, weight, s).draw(1)[0] for s in keys)
    cells = [(e, i) for e, n in enumerate(units) for i in range(n)]
    chance = np.array([weight[e] for e, _ in cells])
    assert sum(first[c] for c in cells) == len(keys)
    assert not any(first[c] for c in cells if weight[c[0]] == 0.0)
    chance, seen = chance[chance > 0], np.array([first[c] for c in cells if weight[c[0]] > 0])
    assert abs(deviate(seen, chance / chance.sum() * len(keys))) < LIMIT
    by_entry = np.array([sum(first[e, i] for i in range(n)) for e, n in enumerate(units)], np.float64)
    rate = np.array(units) * np.array(weight)
    assert abs(deviate(by_entry, rate / rate.sum() * len(keys))) < LIMIT


def test_every_order_has_the_chance_that_drawing_one_by_one_gives_it():
    units, weight = [2, 1, 1], [1.0, 3.0, 0.5]
    cells = [(e, i) for e, n in enumerate(units) for i in range(n)]
    chances = {}
    for order in permutations(cells):
        left = sum(weight[e] for e, _ in cells)
        chance = 1.0
        for e, _ in order:
            chance *= weight[e] / left
            left -= weight[e]
        chances[order] = chance
    keys = some_keys(KEYS, 4)
    seen = Counter(tuple(Draws(units, weight, s).draw(4)) for s in keys)
    assert math.isclose(sum(chances.values()), 1.0)
    assert abs(deviate([seen[o] for o in chances], np.array(list(chances.values())) * len(keys))) < LIMIT


@pytest.mark.skipif(NO_JIT, reason="needs many draws")
def test_a_long_entry_is_drawn_all_along():
    """Among 2,000 units of one weight those of an entry of 1,000 are half of every stretch, not all at once."""
    units = [1000] + [1] * 1000
    ranks = np.zeros(20)
    for seed in some_keys(60, 6):
        order = np.array([e for e, _ in Draws(units, [1.0] * 1001, seed).draw(2000)])
        ranks += np.bincount(np.flatnonzero(order == 0) // 100, minlength=20)
    expected = np.full(20, ranks.sum() / 20)
    chi = float(((ranks - expected) ** 2 / expected).sum() / 0.5)  # half of all are chosen: less uneven by 0.5
    assert 2.5 < chi < 55.0
