"""Many selections over one stream under load: both sides of figures 15 and 16.

The paper's tuples come 100 ms apart; a core of today shows one to a hundred queries in a fraction of a microsecond. So
load is told relative to the machine. Tuples come in intervals of `INTERVAL` each, and an interval is as long as a share
of the CPU time that SIMPLE-Selection needs to show all tuples of it to all queries. At a share of 1 it just keeps up,
at 0.5 it is offered twice what it can do. Neither side may save up time. SIMPLE gives up what it has not come to when
the interval is over. Ours is the engine of continuous queries; nothing in it is given up half way, so tuples are turned
away before it: when it is free it takes all that the interval brings, and while it is still busy with that, what comes
is lost. Of the last interval it takes as much as it expects to be done with in time; if it is not, that does not count.

Two costs of ours are told. `selections`: from the arrivals to the matches of every query, or to its count and sum; the
engine's reading of the stream before that is left out, as SIMPLE is handed its arrivals as arrays, too. `whole tick`:
with that reading, which makes it ready for every other kind of query as well.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

import promising
from benchmarks.paper.logs import Columns, complete_journey
from benchmarks.paper.logs import batches as batches_of
from benchmarks.paper.simple_selection import WAYS, Asked, SimpleSelection, SimpleSums, Way

INTERVAL = 16_384
WARM = 2
"""Intervals before those that count: they fill caches."""
SPARE = 1.1
"""How much dearer than expected the last tuples may be."""
MOST_TUPLES = 1 << 22

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Door:
    """Who is let in, by an engine that works one interval of `budget` nanoseconds after the other."""

    budget: float
    behind: float = 0.0
    """Nanoseconds of work left over when the interval begins."""

    @property
    def open(self) -> bool:
        """Whether the engine gets free before the interval is over."""
        return self.behind < self.budget

    def passed(self, spent: float) -> None:
        """The interval is over; `spent` is what was taken on with it."""
        self.behind = max(0.0, self.behind + spent - self.budget)


@dataclass
class Got:
    """What one side made of the intervals that count, by query."""

    came: Ints
    """Tuples found."""
    sums: Floats
    """Of their prices."""
    seen: Ints
    """Tuples shown to the query, or to the engine."""
    spent: list[float] = field(default_factory=list)
    """Nanoseconds of each interval that was worked on."""
    ticks: list[float] = field(default_factory=list)
    """Of ours, those of the tick before."""


@dataclass
class Taken:
    """What an engine made of a batch: nanoseconds of the tick and of the queries' own work, and by query how many
    tuples came and the sum of their prices."""

    tick: int
    spent: int
    came: Ints
    sums: Floats
    found: Ints
    """Which they are, query by query; nobody knows where only sums are asked for."""


class Ours:
    """A session with the selections as continuous queries."""

    SELECT = "SELECT store_id, item_id, price FROM s WHERE {}"

    def __init__(self, asked: Asked) -> None:
        self.session = promising.open(seed=7)
        self.session.execute(
            "CREATE STREAM s (store_id BIGINT, transaction_id BIGINT, ts TIMESTAMP, item_id BIGINT, price DOUBLE)"
            f" TIMESTAMP BY ts OPTIONS (max_tuples = {MOST_TUPLES})"
        )
        for query in range(len(asked)):
            select = self.SELECT.format(asked.where(query))
            self.session.execute(f"CREATE CONTINUOUS QUERY q{query} AS {select}")
        self.engine = self.session.standing
        views = [self.engine.view(f"q{query}") for query in range(len(asked))]
        (self.source,) = views[0].sources
        numbers = [view.readers[0].number for view in views]
        self.first = numbers[0]
        if numbers != list(range(self.first, self.first + len(asked))):
            raise AssertionError("queries are not numbered one after the other")

    def take(self, batch: Columns, capacity: float | None) -> Taken:
        self.session.ingest("s", batch)
        began = time.thread_time_ns()
        self.engine.tick(capacity=capacity)
        return self._work(time.thread_time_ns() - began)

    def _work(self, tick: int) -> Taken:
        began = time.thread_time_ns()
        fresh = self.source.fresh
        assert fresh is not None
        numbers, ends, found = fresh.lists()
        came = np.diff(ends, prepend=0)
        spent = time.thread_time_ns() - began
        counts = np.zeros(self.queries, np.int64)
        counts[numbers - self.first] = came
        return Taken(tick, spent, counts, np.zeros(self.queries), found - fresh.first)

    @property
    def queries(self) -> int:
        return len(self.engine)

    def close(self) -> None:
        self.session.close()


class OursSums(Ours):
    """A session with aggregates over the selections as continuous queries, over a window in which nothing ends."""

    SELECT = "SELECT count(price) AS n, sum(price) AS s, avg(price) AS a FROM s WHERE {} WINDOW 1000 DAYS"

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        (self._totals,) = self.source.totals.values()
        self._known = np.zeros((len(asked), 3))

    def _work(self, tick: int) -> Taken:
        began = time.thread_time_ns()
        sums = self._totals.look(self.source.clock).floats
        spent = time.thread_time_ns() - began
        (places,) = zip(*(self._totals.places(self.first + query) for query in range(self.queries)), strict=True)
        came = sums[list(places)] - self._known  # since the last time
        self._known = sums[list(places)]
        return Taken(tick, spent, came[:, 2].astype(np.int64), came[:, 0] + came[:, 1], np.empty(0, np.int64))


def run_ours(asked: Asked, batches: list[Columns], budget: float | None, *, whole: bool, sums: bool = False) -> Got:
    """Our side over all batches, the first few aside. budget: nanoseconds an interval; None for all it takes.

    whole: the tick is paid for, too. sums: aggregates stand, and not the selections.
    """
    ours = OursSums(asked) if sums else Ours(asked)
    got = Got(np.zeros(len(asked), np.int64), np.zeros(len(asked)), np.zeros(len(asked), np.int64))
    door = Door(np.inf if budget is None else budget)
    expected = 0.0  # nanoseconds a tuple, by what the last ones took
    for number, batch in enumerate(batches):
        counts = number >= WARM
        if counts and not door.open:
            door.passed(0.0)
            continue
        left = (len(batches) - number) * door.budget - door.behind  # until the last interval is over
        size = len(batch["ts"])
        if counts and expected * size > left:
            size = int(left / (expected * SPARE))
        part = {name: column[: max(1, size)] for name, column in batch.items()}
        capacity = None if budget is None else budget / 1e9
        taken = ours.take(part, capacity)
        spent = float(taken.spent + taken.tick if whole else taken.spent)
        expected = spent / len(part["ts"])
        if not counts:
            continue
        door.passed(spent)
        got.spent.append(float(taken.spent))
        got.ticks.append(float(taken.tick))
        if spent <= left:
            got.came += taken.came
            got.sums += taken.sums
            got.seen += len(part["ts"])
    ours.close()
    return got


def run_simple(asked: Asked, batches: list[Columns], budget: float | None, way: Way, *, sums: bool = False) -> Got:
    """SIMPLE's side, likewise."""
    side = SimpleSums(asked, way) if sums else SimpleSelection(asked, way)
    spare = type(side)(asked, way)
    for batch in batches[:WARM]:
        spare.take(batch["price"], batch["store_id"], 0, lambda: True)
    spent = [_timed(budget, partial(side.take, b["price"], b["store_id"], 0)) for b in batches[WARM:]]
    if isinstance(side, SimpleSums):
        return Got(side.counts, side.sums, side.seen, spent)
    return Got(side.came, np.zeros(len(asked)), side.seen, spent)


def _timed(budget: float | None, work: Callable[[Callable[[], bool]], None]) -> float:
    """Work for so many nanoseconds; how many it took."""
    began = time.thread_time_ns()
    end = None if budget is None else began + budget
    work((lambda: True) if end is None else (lambda: time.thread_time_ns() < end))
    return float(time.thread_time_ns() - began)


@dataclass(frozen=True)
class Need:
    """What SIMPLE needs to show everything to everyone: nanoseconds an interval, by its faster way, and what it got."""

    way: Way
    budget: float
    got: Got
    other: float
    """Nanoseconds of its other way."""


def need(asked: Asked, batches: list[Columns], *, sums: bool = False) -> Need:
    """Both ways, with all the time they want. What they find is compared, and some of it with brute force."""
    got = {way: run_simple(asked, batches, None, way, sums=sums) for way in WAYS}
    cost = {way: statistics.median(found.spent) for way, found in got.items()}
    best, other = sorted(WAYS, key=cost.__getitem__)
    if not np.array_equal(got[best].came, got[other].came):
        raise AssertionError("the two ways of SIMPLE differ")
    counted = batches[WARM:]
    price, store = (np.concatenate([b[name] for b in counted]) for name in ("price", "store_id"))
    for query in range(0, len(asked), max(1, len(asked) // 20)):
        kept = price[asked.truth(price, store, query)]
        if len(kept) != got[best].came[query] or (sums and not np.isclose(kept.sum(), got[best].sums[query])):
            raise AssertionError(f"{asked.where(query)}: SIMPLE has {got[best].came[query]} of {len(kept)} tuples")
    return Need(best, cost[best], got[best], cost[other])


def intervals(seed: int, number: int, size: int = INTERVAL) -> list[Columns]:
    """So many intervals of the retail log, and those to warm up before them."""
    return batches_of(complete_journey((number + WARM) * size, seed).a, size)
