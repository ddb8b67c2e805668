"""Stores of standing queries' results: parts weak, negation and distinct.

What it costs to keep the results of a standing query, in entries looked at (the same on every machine), then in time.
Stores are filled as they would be after a whole window, uncounted; then time goes on, for a tenth of the window or
more. It goes in units; each brings one tuple on each of two links. Where entries are counted, each tuple is a tick of
its own, as in the literature; where time is taken, a tick is a thousandth of the window, as 100 ms are of 100 s.

weak: the results of a join end at a known time, but not in the order in which they came. DIRECT has them in one list.
NT has them in a hash, and is told of every death: ours finds a result by its ids, the one in the literature by its join
key, in a bucket per key or in fewer. UPA(P) has a calendar of P slots; ours has slots of one unit.

negation: results of left EXCEPT ALL right, of which a share goes before its time. The calendar has no index, the hash
is told of every death.

distinct: one result for each value of a window, all of which come again and again, from steps that hold all input or
only what is shown.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from benchmarks.standing_data import Columns, Running, whole
from promising.query.standing.deltas import Ids, Times
from promising.query.standing.operators.distinct import DistinctNode
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.stores import Calendar, HashStore, IndexedCalendar, ScanStore, Store

KEYS = 2_000
LINKS = 2
TICKS = 1_000
"""Of a window."""
COARSEST = 10
"""Slots of the calendar in the literature."""
TOUCHES = "touches/1,000 tuples"
TIME = "CPU ms/1,000 tuples"

Array = NDArray[np.int64]
Sizes = dict[str, int | float | str]


@dataclass(frozen=True)
class Step:
    """One tick: what came, what went before its time, and what ended by it."""

    now: int
    ids: Ids
    exp: Times
    retracted: Ids
    ended: Ids


@dataclass(frozen=True)
class Flow:
    """What is live when the ticks begin, and the ticks."""

    ids: Ids
    exp: Times
    steps: list[Step]
    window: int

    def coarser(self) -> "Flow":
        """The same in ticks of a thousandth of the window."""
        length = max(self.window // TICKS, 1)
        first = self.steps[0].now
        groups: dict[int, list[Step]] = {}
        for step in self.steps:
            groups.setdefault((step.now - first) // length, []).append(step)
        return Flow(self.ids, self.exp, [_one(steps, self.window) for steps in groups.values()], self.window)

    def filled(self, store: Store) -> Store:
        store.expire(self.steps[0].now - 1)
        store.insert(self.ids, self.exp, 0)
        return store


def _one(steps: list[Step], window: int) -> Step:
    """Several ticks as one: what came and went within is left out, what ends before the last of them has ended."""
    now = steps[-1].now
    came: dict[tuple[int, ...], int] = {}
    ended: list[tuple[int, ...]] = []
    retracted: list[tuple[int, ...]] = []
    for step in steps:
        for gone, told in ((step.ended, ended), (step.retracted, retracted)):
            told += [row for row in map(tuple, gone.tolist()) if came.pop(row, None) is None]
        came.update(zip(map(tuple, step.ids.tolist()), step.exp.tolist(), strict=True))
    kept = {row: exp for row, exp in came.items() if exp > now}
    ended += [row for row in retracted if min(row) + window <= now]
    retracted = [row for row in retracted if min(row) + window > now]
    width = steps[0].ids.shape[1]
    rows = [np.array(some, np.int64).reshape(-1, width) for some in (list(kept), retracted, ended)]
    return Step(now, rows[0], np.array(list(kept.values()), np.int64), rows[1], rows[2])


def by_time(store: Store, flow: Flow) -> None:
    """As a store is used that ends results itself."""
    for number, step in enumerate(flow.steps, 1):
        store.expire(step.now)
        if len(step.retracted):
            store.remove(step.retracted)
        if len(step.exp):
            store.insert(step.ids, step.exp, number)


def by_word(store: Store, flow: Flow) -> None:
    """As a store is used that is told of every death."""
    for number, step in enumerate(flow.steps, 1):
        for gone in (step.ended, step.retracted):
            if len(gone):
                store.remove(gone)
        if len(step.exp):
            store.insert(step.ids, step.exp, number)


def way(store: Store) -> Callable[[Store, Flow], None]:
    return by_word if isinstance(store, HashStore) else by_time


def touches(made: dict[str, Callable[[], Store]], flow: Flow) -> dict[str, float]:
    """Of each store, per 1,000 tuples; all must hold the same in the end."""
    found, held = {}, {}
    for name, make in made.items():
        store = flow.filled(make())
        before = store.touches
        way(store)(store, flow)
        found[name] = (store.touches - before) / len(flow.steps) * 1000
        held[name] = np.sort(store.live()[0] @ np.array([1 << 32, 1])[: store.width])
    first = next(iter(held.values()))
    for name, other in held.items():
        if not np.array_equal(first, other):
            raise AssertionError(f"{name} holds {len(other)} results, others {len(first)}")
    return found


def times(made: dict[str, Callable[[], Store]], flow: Flow, tuples: int, rounds: int) -> dict[str, float]:
    """Of each store, CPU milliseconds per 1,000 tuples."""

    def contender(make: Callable[[], Store]) -> Contender:
        def prepare() -> Run:
            store = flow.filled(make())
            return lambda: way(store)(store, flow)

        return prepare

    took = alternate({name: contender(make) for name, make in made.items()}, rounds)
    return {name: ns / tuples * 1000 / 1e6 for name, ns in took.items()}


# --- weak (B2) -------------------------------------------------------------------------------------------------------


def weak(report: Report, effort: Effort) -> None:
    """Check B2."""
    counted, timed = [], []
    for window in (500, 2_000) if effort.quick else (2_000, 5_000, 10_000, 20_000):
        flow, keys = joined(window, KEYS if window >= KEYS else window // 2)
        made: dict[str, Callable[[], Store]] = {
            "DIRECT": partial(ScanStore, 2),
            "NT, by ids": partial(HashStore, 2),
            **{f"UPA({parts})": partial(Calendar, 2, window, parts=parts) for parts in (10, 50, 1000)},
            "calendar, slot = unit": partial(Calendar, 2, window, 1),
        }
        found = touches(made, flow)
        for buckets in (KEYS, 50):
            found[f"NT, by key in {buckets:,}"] = by_key(flow, keys, buckets)
        largest = window == 20_000
        sizes: Sizes = {"window": window, "results": len(flow.exp), "ticks": len(flow.steps)}
        per_key, few = f"NT, by key in {KEYS:,}", "NT, by key in 50"
        counted += [
            _against(found, "UPA(1000)", "DIRECT", "<= 0.02" if largest else "", sizes),
            _against(found, "UPA(1000)", per_key, "<= 0.1" if largest else "", sizes),
            _against(found, "UPA(1000)", few, "<= 0.1" if largest else "", sizes),
            _against(found, "UPA(1000)", "NT, by ids", "", sizes),
            _against(found, "UPA(10)", per_key, ">= 1" if largest else "", sizes),
            _against(found, "UPA(50)", per_key, "", sizes),
            _against(found, "calendar, slot = unit", "DIRECT", "<= 0.02" if largest else "", sizes),
            _against(found, "calendar, slot = unit", per_key, "<= 0.1" if largest else "", sizes),
            _against(found, "calendar, slot = unit", "NT, by ids", "", sizes),
        ]
        took = times(made, flow.coarser(), len(flow.steps), effort.rounds)
        ours = "calendar, slot = unit"
        timed += [Figure(ours, took[ours], took[name], name, TIME, sizes=sizes) for name in made if name != ours]
    report.part("weak", "entries that the store of a join looks at, per 1,000 tuples", counted)
    report.part("weak", "CPU time of the same, in ticks of a thousandth of the window", timed)


def _against(found: dict[str, float], ours: str, theirs: str, goal: str, sizes: Sizes) -> Figure:
    return Figure(ours, found[ours], found[theirs], theirs, TOUCHES, goal, sizes)


def joined(window: int, number: int) -> tuple[Flow, Array]:
    """Two links joined on keys drawn alike from `number`; the keys of the first link's tuples.

    A tuple has the unit it came in as its number, on either link. Result (i, j) ends at min(i, j) + window.
    """
    rng = np.random.default_rng(window)
    start, stop = window, window + max(window // COARSEST, 1)
    keys = rng.integers(0, number, (LINKS, stop))
    at: list[list[list[int]]] = [[[] for _ in range(number)] for _ in range(LINKS)]
    for link in range(LINKS):
        for i, key in enumerate(keys[link, :start].tolist()):
            at[link][key].append(i)
    pairs = [(i, j) for key in range(number) for i in at[0][key] for j in at[1][key]]
    ids = np.array(pairs, np.int64).reshape(-1, 2)
    exp = ids.min(axis=1) + window
    ids, exp = ids[exp >= start], exp[exp >= start]
    order = np.argsort(ids.max(axis=1), kind="stable")
    steps = []
    for now in range(start, stop):
        old = now - window
        for link in range(LINKS):
            ended = []
            if link == 0:  # with the first tuple of a unit the old ones of both links end
                for side in range(LINKS):
                    key = int(keys[side, old])
                    del at[side][key][0]
                    partners = at[1 - side][key]
                    ended += [(old, j) if side == 0 else (j, old) for j in partners]
            key = int(keys[link, now])
            came = [(now, j) if link == 0 else (j, now) for j in at[1 - link][key]]
            at[link][key].append(now)
            new = np.array(came, np.int64).reshape(-1, 2)
            gone = np.array(ended, np.int64).reshape(-1, 2)
            steps.append(Step(now, new, new.min(axis=1, initial=1 << 60) + window, gone[:0], gone))
    return Flow(ids[order], exp[order], steps, window), keys[0]


def by_key(flow: Flow, keys: Array, buckets: int) -> float:
    """Entries that a hash by key looks at, per 1,000 tuples: lists in order of coming, searched from the front."""
    lists: list[list[tuple[int, int]]] = [[] for _ in range(buckets)]
    of = (keys % buckets).tolist()
    for i, j in flow.ids.tolist():
        lists[of[i]].append((i, j))
    looked = 0
    for step in flow.steps:
        for i, j in step.ended.tolist():
            held = lists[of[i]]
            place = held.index((i, j))
            looked += place + 1
            del held[place]
        for i, j in step.ids.tolist():
            lists[of[i]].append((i, j))
            looked += 1
    return looked / len(flow.steps) * 1000


# --- negation (B4) ---------------------------------------------------------------------------------------------------


def negation(report: Report, effort: Effort) -> None:
    """Check B4."""
    counted: list[Figure] = []
    timed: list[Figure] = []
    for window in (500,) if effort.quick else (2_000, 20_000):
        for rate in (0, 0.5, 4) if effort.quick else (0, 0.01, 0.1, 0.3, 0.7, 2, 4):
            flow, share = negated(window, rate)
            made: dict[str, Callable[[], Store]] = {
                "calendar": partial(Calendar, 1, window, 1),
                "hash": partial(HashStore, 1),
                "indexed calendar": partial(IndexedCalendar, 1, window, 1),
            }
            ours = "indexed calendar"
            sizes: Sizes = {"window": window, "results": len(flow.exp), "premature %": round(100 * share, 1)}
            for figures, unit, goal, found in (
                (counted, TOUCHES, "<= 1.2", touches(made, flow)),
                (timed, TIME, "", times(made, flow.coarser(), len(flow.steps), effort.rounds)),
            ):
                better = min(("calendar", "hash"), key=lambda name: found[name])
                figures += [
                    Figure("calendar", found["calendar"], found["hash"], "hash", unit, sizes=sizes),
                    Figure(ours, found[ours], found[better], f"the better: {better}", unit, goal, sizes),
                ]
    report.part("negation", "entries that the store of a negation looks at, per 1,000 tuples", counted)
    report.part("negation", "CPU time of the same, in ticks of a thousandth of the window", timed)


def negated(window: int, rate: float) -> tuple[Flow, float]:
    """Left EXCEPT ALL right, and the share of deaths that come before their time.

    rate: tuples of the right in a unit, all with values that the left has; their window is a twentieth of the left's,
    so that they take away little of what is shown, and as often as they come. What is shown of a value are its oldest
    tuples.
    """
    rng = np.random.default_rng(window)
    start, stop, short = window, window + min(window, 2_000), window // 20
    left = rng.integers(0, KEYS, stop).tolist()
    each = rng.poisson(rate, stop) if rate < 1 else np.full(stop, int(rate))
    right = [rng.integers(0, KEYS, number).tolist() for number in each]
    held: list[deque[int]] = [deque() for _ in range(KEYS)]
    against = [0] * KEYS
    shown: set[int] = set()
    steps: list[Step] = []
    begin: Ids = _rows([])
    for now in range(stop):
        if now == start:
            begin = _rows(sorted(shown))
        came: list[int] = []
        over: list[int] = []
        if now >= window:
            old = now - window
            held[left[old]].popleft()
            if old in shown:
                shown.remove(old)
                over.append(old)
        for value in right[now - short] if now >= short else ():
            against[value] -= 1
            came += _youngest_shown(held[value], against[value])
        held[left[now]].append(now)
        came += _youngest_shown(held[left[now]], against[left[now]])
        shown.update(came)
        if now >= start:
            steps.append(Step(now, _rows(came), np.array(came, np.int64) + window, _rows([]), _rows(over)))
        for value in right[now]:
            gone = _youngest_shown(held[value], against[value])
            against[value] += 1
            shown.difference_update(gone)
            if now >= start:
                steps.append(Step(now, _rows([]), np.empty(0, np.int64), _rows(gone), _rows([])))
    premature, natural = sum(len(s.retracted) for s in steps), sum(len(s.ended) for s in steps)
    return Flow(begin, begin[:, 0] + window, steps, window), premature / (premature + natural)


def _youngest_shown(held: deque[int], against: int) -> list[int]:
    """Of one value's tuples on the left, with so many on the right: the last of the oldest that are left over."""
    number = len(held) - against
    return [held[number - 1]] if number > 0 else []


def _rows(numbers: list[int]) -> Ids:
    return np.array(numbers, np.int64).reshape(-1, 1)


# --- distinct (B3) ---------------------------------------------------------------------------------------------------


def distinct(report: Report, effort: Effort) -> None:
    """Check B3."""
    figures = []
    window = 10_000 if effort.quick else 200_000
    for number in (window // 100, window // 10):
        plain, spare = _distinct(window, number, True), _distinct(window, number, False)
        for made in (plain, spare):
            _advance(made, 0, window, window // 50)
        shown = len(spare.store)
        if shown != len(plain.store):
            raise AssertionError(f"distinct* shows {shown} results, distinct {len(plain.store)}")
        sizes: Sizes = {"window": window, "values": number, "shown": shown}
        judged = number == window // 100 and not effort.quick
        entries, every = spare.node.state(), plain.node.state()
        figures += [
            Figure("distinct*, entries", entries, shown, "results shown", "entries", "<= 2", sizes),
            Figure("distinct, entries", every, shown, "results shown", "entries", sizes=sizes),
            Figure(
                "distinct*, memory",
                spare.node.nbytes,
                plain.node.nbytes,
                "distinct",
                "bytes",
                "<= 0.02" if judged else "",
                sizes,
            ),
        ]
        length = window // COARSEST
        took = alternate(
            {"distinct*": _going_on(window, number, False), "distinct": _going_on(window, number, True)}, effort.rounds
        )
        per = {name: ns / length * 1000 / 1e6 for name, ns in took.items()}
        goal = "<= 0.2" if judged else ""
        figures.append(Figure("distinct*, time", per["distinct*"], per["distinct"], "distinct", TIME, goal, sizes))
    report.part("distinct", "what distinct holds, and its CPU time in ticks of a thousandth of the window", figures)


def _distinct(window: int, number: int, retracted: bool) -> Running:
    """One tuple a unit, with one of `number` values."""
    length = 2 * window
    rows = Columns({"v": np.random.default_rng(number).integers(0, number, length)})
    leaf = Leaf(rows, window)
    node = DistinctNode(ProjectNode(leaf, [whole(0, "v")]), retracted)
    return Running(node, [leaf], [np.arange(length)], Calendar(1, window, window // TICKS))


def _advance(running: Running, first: int, end: int, each: int) -> None:
    for at in range(first, end, each):
        running.tick(at + each - 1, [at], [at + each])


def _going_on(window: int, number: int, retracted: bool) -> Contender:
    def prepare() -> Run:
        running = _distinct(window, number, retracted)
        _advance(running, 0, window, window // 50)
        return lambda: _advance(running, window, window + window // COARSEST, window // TICKS)

    return prepare
