"""Plans of standing queries against others that give the same: parts tables and orders.

tables: a stream joined with a table of which 1 % of the rows change each second, over a window of 60 s, in ticks of
100 ms. If the table is retroactive, the view is that of its current contents: a change retracts the results of the old
row and makes those of the new one, for which the window is held. If it is not, a tuple stays with the row it met.

orders: tuples of A without one of B and with one of C. The negation is above the join or below it. NT says of each
result that it ended, step by step; our way leaves what ends by time to whoever holds it, and retracts only above the
negation. The join above the negation is there in NT only, as a plan of its own has the negation on top.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from benchmarks.standing_data import Columns, Ints, Running, whole
from promising.index.table import Table
from promising.query.standing.deltas import Mode
from promising.query.standing.operators.exists import ExistsNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Step
from promising.query.standing.operators.table_join import TableJoinNode
from promising.query.standing.stores import store_for

SECOND = 1_000_000
TICK = SECOND // 10
Sizes = dict[str, int | float | str]

# --- tables (B6) -----------------------------------------------------------------------------------------------------

WINDOW = 60 * SECOND
STREAM = "s"


@dataclass
class WithTable:
    """A stream that meets a table."""

    rate: int
    """Tuples a second."""
    rows: int
    retroactive: bool
    seconds: int

    def __post_init__(self) -> None:
        length = self.rate * self.seconds
        rng = np.random.default_rng(1)
        self.keys = rng.integers(0, self.rows, length)
        self.changed = [rng.permutation(self.rows)[: self.rows // 100] for _ in range(self.seconds)]
        times = np.arange(length) * (SECOND // self.rate)
        self.table = Table("t", {"k": "int", "v": "int"}, "k", retroactive=self.retroactive)
        self.table.change({"k": np.arange(self.rows), "v": np.zeros(self.rows, np.int64)}, None, {STREAM: 0})
        leaf = Leaf(Columns({"k": self.keys}), WINDOW)
        self.node = TableJoinNode(leaf, STREAM, self.table, 1, whole(0, "k"))
        store = store_for("indexed calendar" if self.retroactive else "ring", 2, WINDOW)
        self.running = Running(self.node, [leaf], [times], store)

    def fill(self) -> None:
        """A whole window, in which the table stays as it is."""
        for second in range(60):
            self.running.tick((second + 1) * SECOND - 1, [second * self.rate], [(second + 1) * self.rate])

    def run(self, first: int, end: int) -> None:
        """The seconds from one to another: each begins with a change of 1 % of the rows."""
        ticks = SECOND // TICK
        each = self.rate // ticks
        for second in range(first, end):
            keys = self.changed[second]
            self.table.change({"k": keys, "v": np.full(len(keys), second)}, None, {STREAM: second * self.rate})
            for number in range(second * ticks, (second + 1) * ticks):
                self.running.tick((number + 1) * TICK - 1, [number * each], [(number + 1) * each])

    def right(self) -> bool:
        """Whether what is shown is what the table says: as it is, or as it was."""
        ids, _, _ = self.running.store.live()
        seqs, versions = ids[:, 0], ids[:, 1]
        when = None if self.retroactive else self.table.change_at(STREAM, seqs)
        return len(ids) == min(self.rate * 60, len(self.keys)) and bool(
            np.array_equal(versions, self.table.find(self.keys[seqs], when))
        )


def tables(report: Report, effort: Effort) -> None:
    """Check B6."""
    rate, rows, after = (100, 1_000, 2) if effort.quick else (1_000, 10_000, 10)
    sizes: Sizes = {"tuples/s": rate, "table": rows, "changes/s": rows // 100, "window s": 60, "seconds": after}
    made = {kept: WithTable(rate, rows, kept, 60 + after) for kept in (False, True)}
    for kept, one in made.items():
        one.fill()
        one.run(60, 60 + after)
        if not one.right():
            raise AssertionError(f"what is shown is wrong; retroactive: {kept}")
    plain, retroactive = made[False], made[True]
    lost = {kept: one.running.invalid / after for kept, one in made.items()}
    other = "RETROACTIVE"
    figures = [
        Figure("NON RETROACTIVE, retractions", lost[False], unit="a second", goal="<= 0", sizes=sizes),
        Figure("RETROACTIVE, retractions", lost[True], unit="a second", sizes=sizes),
        Figure("NON RETROACTIVE, tuples held", plain.node.state(), unit="entries", goal="<= 0", sizes=sizes),
        Figure("RETROACTIVE, tuples held", retroactive.node.state(), unit="entries", sizes=sizes),
        Figure("NON RETROACTIVE, state", plain.node.nbytes, retroactive.node.nbytes, other, "bytes", sizes=sizes),
        Figure(
            "NON RETROACTIVE, store of results",
            plain.running.store.nbytes,
            retroactive.running.store.nbytes,
            other,
            "bytes",
            sizes=sizes,
        ),
    ]

    def contender(kept: bool) -> Contender:
        def prepare() -> Run:
            one = WithTable(rate, rows, kept, 60 + after)
            one.fill()
            return lambda: one.run(60, 60 + after)

        return prepare

    took = alternate({str(kept): contender(kept) for kept in made}, effort.rounds)
    per = {name: ns / (rate * after) * 1000 / 1e6 for name, ns in took.items()}
    unit = "CPU ms/1,000 tuples"
    figures.append(Figure("NON RETROACTIVE, time", per["False"], per["True"], other, unit, sizes=sizes))
    report.part("tables", "a stream with a table that changes", figures)


# --- orders (B5) -----------------------------------------------------------------------------------------------------

KEYS = 2_000
LARGEST = 20_000


class Below(ExistsNode):
    """A negation that a join can stand on."""

    @property
    def length(self) -> int | None:
        return self.span


@dataclass(frozen=True)
class Order:
    """A plan for A without B and with C; ids of its results begin with A's and C's."""

    name: str
    mode: Mode
    store: str
    plan: Callable[[Leaf, Leaf, Leaf], Step]


def _negation_up(a: Leaf, b: Leaf, c: Leaf) -> Step:
    return ExistsNode(JoinNode(a, c, [(whole(0, "k"), whole(2, "k"))]), b, [(whole(0, "k"), whole(1, "k"))], True)


def _join_up(a: Leaf, b: Leaf, c: Leaf) -> Step:
    below = Below(a, b, [(whole(0, "k"), whole(1, "k"))], True)
    return JoinNode(cast(Leaf, below), c, [(whole(0, "k"), whole(2, "k"))])


ORDERS = (
    Order("ours, negation up", Mode.PIGGYBACK, "indexed calendar", _negation_up),
    Order("NT, negation up", Mode.NTA, "hash", _negation_up),
    Order("NT, join up", Mode.NTA, "hash", _join_up),
)


@dataclass
class Ordered:
    """One of the plans over three streams, a tuple of each in a unit."""

    order: Order
    window: int
    taken: float
    """How many of the keys B has at any time; they come and go. Its other tuples have keys of their own."""
    length: int

    def __post_init__(self) -> None:
        rng = np.random.default_rng(1)
        keys = [rng.integers(0, KEYS, self.length) for _ in range(3)]
        shared = -math.log(1 - self.taken) * KEYS / self.window
        keys[1] += np.where(rng.random(self.length) < shared, 0, KEYS)
        leaves = [Leaf(Columns({"k": k}), self.window, self.order.mode, place) for place, k in enumerate(keys)]
        times: list[Ints] = [np.arange(self.length)] * 3
        each = max(self.window // 1000, 1)
        store = store_for(self.order.store, 2, self.window, each)
        self.running = Running(self.order.plan(*leaves), leaves, times, store)
        self.each = each

    def fill(self) -> None:
        """A whole window, in few ticks."""
        self._run(0, self.window, max(self.window // 50, 1))

    def go_on(self) -> None:
        """All the rest, in ticks of a thousandth of the window."""
        self._run(self.window, self.length, self.each)

    def _run(self, first: int, end: int, each: int) -> None:
        for at in range(first, end, each):
            stop = min(at + each, end)
            self.running.tick(stop - 1, [at] * 3, [stop] * 3)

    def shown(self) -> Ints:
        ids, _, _ = self.running.store.live()
        return np.sort(ids @ np.array([1 << 32, 1]))


def orders(report: Report, effort: Effort) -> None:
    """Check B5."""
    counted: list[Figure] = []
    timed: list[Figure] = []
    ours = ORDERS[0].name
    for window in (2_000,) if effort.quick else (2_000, LARGEST):
        for taken in (0.3,) if effort.quick else (0.0, 0.1, 0.5):
            after = 200 if effort.quick else max(window // 10, 1_000)
            sizes: Sizes = {"window": window, "keys taken": taken}
            work, shown = {}, {}
            for order in ORDERS:
                one = Ordered(order, window, taken, window + after)
                one.fill()
                before = replace(one.running.counters)
                one.go_on()
                now = one.running.counters
                work[order.name] = [
                    (now.positives + now.negatives - before.positives - before.negatives) / (3 * after) * 1000,
                    (now.probes - before.probes) / (3 * after) * 1000,
                    one.running.node.state(),
                    one.running.invalid / max(one.running.ended + one.running.invalid, 1),
                ]
                shown[order.name] = one.shown()
                if not np.array_equal(shown[order.name], shown[ours]):
                    raise AssertionError(f"{order.name} shows other results than {ours}")
            sizes |= {"results": len(shown[ours]), "premature %": round(100 * work[ours][-1], 1)}
            for at, (what, unit) in enumerate(
                (("handed on", "results/1,000 tuples"), ("probes", "probes/1,000 tuples"), ("held", "entries"))
            ):
                counted += _figures(f"{ours}, {what}", {name: found[at] for name, found in work.items()}, unit, sizes)
            took = alternate(
                {order.name: _contender(order, window, taken, after) for order in ORDERS}, min(effort.rounds, 3)
            )
            per = {name: ns / (3 * after) * 1000 / 1e6 for name, ns in took.items()}
            timed += _figures(ours, per, "CPU ms/1,000 tuples", sizes, "<= 1" if window == LARGEST else "")
    report.part("orders", "what three plans for one query hand on and hold", counted)
    report.part("orders", "CPU time of the same, in ticks of a thousandth of the window", timed)


def _figures(metric: str, found: dict[str, float], unit: str, sizes: Sizes, goal: str = "") -> Sequence[Figure]:
    ours, *others = ORDERS
    return [Figure(metric, found[ours.name], found[other.name], other.name, unit, goal, sizes) for other in others]


def _contender(order: Order, window: int, taken: float, after: int) -> Contender:
    def prepare() -> Run:
        one = Ordered(order, window, taken, window + after)
        one.fill()
        return one.go_on

    return prepare
