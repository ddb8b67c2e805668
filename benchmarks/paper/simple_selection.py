"""SIMPLE-Selection: the stream is fed to each query separately, in the order of arrival, until time is out.

Two ways, both compiled, and whoever compares takes the faster one. `tuples`, the paper's: a tuple is shown to all
queries, then the next. `queries`: a few hundred arrivals are shown to one query, then to the next; the loop has no
branch, and for sums it runs on vectors. A step of work is a piece of the arrivals and a group of queries; the clock is
read between steps. When time is out the rest of the interval's tuples are lost to the queries that had no turn, and
these are the first to have one in the next interval.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from promising.summaries.kernels.jit import kernel

PAIRS = 1 << 15
"""Tuples times queries of a step: some 20 microseconds, beside which the call and the clock are little."""
GROUP = 64
"""Queries of a step, at most; their bounds stay in the fastest cache."""
NARROWEST, WIDEST = 0.05, 0.10
"""Selectivity of a query."""
TRIES = 10_000
EVERY = 1 << 62
"""Bounds of the store of a query that does not ask for one: from -EVERY to EVERY."""

Way = Literal["tuples", "queries"]
WAYS: tuple[Way, Way] = ("tuples", "queries")
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Matches = list[tuple[int, Ints]]

ASKED = "float64[::1], int64[::1], float64[::1], float64[::1], int64[::1], int64[::1]"
"""Price and store of the arrivals; of the queries the least and the greatest price, and the same of the store."""


@dataclass(frozen=True)
class Asked:
    """Selections: low <= price <= high, and every fifth as well store_low <= store_id <= store_high."""

    low: Floats
    high: Floats
    store_low: Ints
    store_high: Ints

    def __len__(self) -> int:
        return len(self.low)

    def where(self, query: int) -> str:
        """The condition in SQL; numbers are written so that they are read back as they are."""
        said = f"price BETWEEN {float(self.low[query])!r} AND {float(self.high[query])!r}"
        if self.store_high[query] != EVERY:
            said += f" AND store_id BETWEEN {self.store_low[query]} AND {self.store_high[query]}"
        return said

    def first(self, number: int) -> "Asked":
        """The first so many."""
        return Asked(*(getattr(self, name)[:number] for name in ("low", "high", "store_low", "store_high")))

    def truth(self, price: Floats, store: Ints, query: int) -> NDArray[np.bool_]:
        """Which tuples a query takes, the plain way."""
        kept = (price >= self.low[query]) & (price <= self.high[query])
        if self.store_high[query] != EVERY:
            kept &= (store >= self.store_low[query]) & (store <= self.store_high[query])
        out: NDArray[np.bool_] = kept
        return out


def draw(number: int, price: Floats, store: Ints, seed: int) -> Asked:
    """Selections that keep 5-10 % of these tuples each, no two alike.

    Prices are in cents and many tuples share one, so a range is drawn again until it keeps as many as it should. Its
    ends lie between two cents, which makes each a condition of its own: equal ones would be one view in the engine.
    """
    rng = np.random.default_rng(seed)
    prices, stores = np.sort(price), np.sort(store)
    made: list[tuple[float, float, int, int]] = []
    for query in range(number):
        for _ in range(TRIES):
            both = query % 5 == 4
            wide = rng.uniform(NARROWEST, WIDEST) * (4 if both else 1)
            low, high = _stretch(rng, prices, wide)
            one = low - rng.uniform(0.001, 0.004), high + rng.uniform(0.001, 0.004)
            few, last = _stretch(rng, stores, 0.25) if both else (-EVERY, EVERY)
            kept = (price >= one[0]) & (price <= one[1]) & (store >= few) & (store <= last)
            if NARROWEST <= kept.mean() <= WIDEST:
                made.append((float(one[0]), float(one[1]), int(few), int(last)))
                break
        else:
            raise ValueError(f"no range of prices keeps {NARROWEST:.0%} to {WIDEST:.0%} of these tuples")
    return Asked(*(np.array(column) for column in zip(*made, strict=True)))


def _stretch(rng: np.random.Generator, ordered: NDArray[Any], share: float) -> tuple[Any, Any]:
    long = int(len(ordered) * share)
    at = int(rng.integers(0, len(ordered) - long))
    return ordered[at], ordered[at + long]


# --- the loops ---------------------------------------------------------------------------------------------------


@kernel(f"void({ASKED}, int64, int64[:,::1], int64[::1])")
def feed_tuples(
    price: Floats,
    store: Ints,
    low: Floats,
    high: Floats,
    few: Ints,
    last: Ints,
    base: int,
    found: Ints,
    ends: Ints,
) -> None:
    """Write the number of each tuple that query `q` takes into `found[q]`, from `ends[q]` on."""
    for i in range(price.size):
        x = price[i]
        for q in range(low.size):
            if (x >= low[q]) & (x <= high[q]) and (store[i] >= few[q]) & (store[i] <= last[q]):
                found[q, ends[q]] = base + i
                ends[q] += 1


@kernel(f"void({ASKED}, int64, int64[:,::1], int64[::1])")
def feed_queries(
    price: Floats,
    store: Ints,
    low: Floats,
    high: Floats,
    few: Ints,
    last: Ints,
    base: int,
    found: Ints,
    ends: Ints,
) -> None:
    """The same, query by query: each number is written, and overwritten by the next unless the tuple is taken."""
    for q in range(low.size):
        a, b, c, d = low[q], high[q], few[q], last[q]
        at = ends[q]
        if d == EVERY:
            for i in range(price.size):
                found[q, at] = base + i
                at += np.int64((price[i] >= a) & (price[i] <= b))
        else:
            for i in range(price.size):
                found[q, at] = base + i
                at += np.int64((price[i] >= a) & (price[i] <= b) & (store[i] >= c) & (store[i] <= d))
        ends[q] = at


@kernel(f"void({ASKED}, int64[::1], float64[::1])")
def sum_tuples(
    price: Floats, store: Ints, low: Floats, high: Floats, few: Ints, last: Ints, counts: Ints, sums: Floats
) -> None:
    """Count the tuples that each query takes and add up their prices."""
    for i in range(price.size):
        x = price[i]
        for q in range(low.size):
            if (x >= low[q]) & (x <= high[q]) and (store[i] >= few[q]) & (store[i] <= last[q]):
                counts[q] += 1
                sums[q] += x


@kernel(f"void({ASKED}, int64[::1], float64[::1])", fastmath={"reassoc", "nsz"})
def sum_queries(
    price: Floats, store: Ints, low: Floats, high: Floats, few: Ints, last: Ints, counts: Ints, sums: Floats
) -> None:
    """The same, query by query; sums may be added up in any order, so that the loop runs on vectors."""
    for q in range(low.size):
        a, b, c, d = low[q], high[q], few[q], last[q]
        number = np.int64(0)
        total = 0.0
        if d == EVERY:
            for i in range(price.size):
                kept = (price[i] >= a) & (price[i] <= b)
                number += np.int64(kept)
                total += price[i] if kept else 0.0
        else:
            for i in range(price.size):
                kept = (price[i] >= a) & (price[i] <= b) & (store[i] >= c) & (store[i] <= d)
                number += np.int64(kept)
                total += price[i] if kept else 0.0
        counts[q] += number
        sums[q] += total


# --- the operators -----------------------------------------------------------------------------------------------


class Turns:
    """Steps of work in turns: pieces of the arrivals in order, and of each piece the groups of queries in turn."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        number = len(asked)
        edges = np.linspace(0, number, -(-number // GROUP) + 1).astype(int).tolist()
        self.groups = list(pairwise(edges))
        self.largest = max(end - first for first, end in self.groups)
        self.piece = max(1, PAIRS // self.largest)
        self.seen = np.zeros(number, np.int64)
        """Tuples that each query was shown."""
        self._turn = 0

    def steps(self, tuples: int, allowed: Callable[[], bool]) -> Iterator[tuple[int, int, int, int]]:
        """Piece and group (first tuple, end, first query, end) of each step, for as long as it is allowed."""
        first = self._turn
        for at in range(0, tuples, self.piece):
            end = min(at + self.piece, tuples)
            for number in range(len(self.groups)):
                group = (first + number) % len(self.groups)
                if not allowed():
                    self._turn = group
                    return
                self.seen[slice(*self.groups[group])] += end - at
                yield at, end, *self.groups[group]

    def bounds(self, first: int, end: int) -> tuple[Floats, Floats, Ints, Ints]:
        """Those of a group of queries."""
        asked = self.asked
        return asked.low[first:end], asked.high[first:end], asked.store_low[first:end], asked.store_high[first:end]


class SimpleSelection(Turns):
    """Writes the numbers of the tuples that each query takes."""

    def __init__(self, asked: Asked, way: Way) -> None:
        super().__init__(asked)
        self.came = np.zeros(len(asked), np.int64)
        """Results of each query."""
        self._feed = feed_tuples if way == "tuples" else feed_queries
        # One place more than there are tuples: the loop without a branch writes before it knows.
        self._found = np.zeros((self.largest, self.piece + 1), np.int64)
        self._ends = np.zeros(len(self._found), np.int64)

    def take(
        self, price: Floats, store: Ints, base: int, allowed: Callable[[], bool], kept: Matches | None = None
    ) -> None:
        """Work on the arrivals `base`, `base + 1`, ... of an interval; `kept` is handed what was found by query."""
        for at, end, first, last in self.steps(len(price), allowed):
            ends = self._ends[: last - first]
            ends[:] = 0
            self._feed(price[at:end], store[at:end], *self.bounds(first, last), base + at, self._found, ends)
            self.came[first:last] += ends
            if kept is not None:
                kept += [(first + q, self._found[q, : ends[q]].copy()) for q in range(last - first)]


class SimpleSums(Turns):
    """Counts the tuples that each query takes, and adds up their prices."""

    def __init__(self, asked: Asked, way: Way) -> None:
        super().__init__(asked)
        self.counts = np.zeros(len(asked), np.int64)
        self.sums = np.zeros(len(asked), np.float64)
        self._sum = sum_tuples if way == "tuples" else sum_queries

    def take(self, price: Floats, store: Ints, base: int, allowed: Callable[[], bool]) -> None:
        """Work on the arrivals of an interval; which they are does not matter here."""
        for at, end, first, last in self.steps(len(price), allowed):
            counts, sums = self.counts[first:last], self.sums[first:last]
            self._sum(price[at:end], store[at:end], *self.bounds(first, last), counts, sums)
