"""Each step alone, in every mode, against what it stands for, worked out from scratch after each tick."""

import math
import random
import statistics
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from promising.index.table import Table
from promising.query.aggregate.aggregates import Aggregate
from promising.query.bound import RESULT
from promising.query.preference import BoundPreference
from promising.query.scalar.compiled import Compiled, apply, column
from promising.query.scalar.scope import Input
from promising.query.scalar.types import Kind
from promising.query.standing.deltas import POS, Mode
from promising.query.standing.operators.distinct import DistinctNode
from promising.query.standing.operators.exists import ExistsNode
from promising.query.standing.operators.group import GroupNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.sets import SetNode
from promising.query.standing.operators.step import Step, rows_of
from promising.query.standing.operators.table_join import TableJoinNode
from promising.query.standing.operators.union import UnionNode
from promising.query.standing.operators.window_join import JoinWindow, WindowJoinNode
from tests.query.standing.harness import Stream, View, col

pytestmark = pytest.mark.kernel

MODES = list(Mode)
JOINS = [
    (mode, join) for mode in MODES for join in (JoinNode, WindowJoinNode) if (mode, join) != (Mode.NTA, WindowJoinNode)
]
"""Where each end is told only the one that can take tuples back will do."""
KINDS: dict[str, Kind] = {"k": "int", "x": "int", "y": "float", "s": "string"}


def less(a: Compiled, b: Compiled) -> Compiled:
    return apply("bool", (a, b), pc.less)


class Story:
    """Random ticks of two streams: bursts, silence, late tuples, equal times, duplicates."""

    def __init__(self, seed: int, mode: Mode, windows=(40, 25), keys=4) -> None:
        self.random = random.Random(seed)
        self.mode = mode
        self.keys = keys
        self.streams = [Stream(KINDS, window) for window in windows]
        self.leaves = [stream.leaf(mode, place) for place, stream in enumerate(self.streams)]
        self.born: list[list[int]] = [[] for _ in windows]
        self.now = 1000

    def row(self, ts):
        r = self.random
        key = None if r.random() < 0.08 else r.randrange(self.keys)
        y = (
            r.choice([None, math.nan, math.inf, -math.inf])
            if r.random() < 0.05
            else r.choice([0.5, -1.25, 1e15, 3.0, 1e-9])
        )
        return (ts, key, r.choice([None, 1, 2, 3, -7]), y, r.choice([None, "", "a", "bee"]))

    def arrivals(self):
        r = self.random
        previous = self.now
        self.now += r.choice([0, 0, 1, 3, 10, 60 if r.random() < 0.2 else 5])
        for stream, leaf, born in zip(self.streams, self.leaves, self.born, strict=True):
            if r.random() < 0.25:
                continue
            rows = []
            for _ in range(r.choice([0, 1, 2, 6])):
                late = r.random() < 0.3
                ts = r.randint(previous - 45, previous) if late else r.randint(previous, self.now)
                rows.append(self.row(ts))
                if r.random() < 0.2:
                    rows.append(rows[-1])
            stream.add(leaf, rows)
            born.extend([self.now] * len(rows))

    def live(self, number, time):
        """Values of the live tuples of a stream."""
        stream, born = self.streams[number], self.born[number]
        return [stream.values[i] for i in stream.live(time, born)]

    def run(self, node, truth, ticks=60, partly=False):
        """Tick, and compare where the time is known."""
        view = View(node)
        for _ in range(ticks):
            self.arrivals()
            deltas = view.tick(self.now)
            if self.mode is not Mode.ITA or deltas.time is not None:
                expected = truth(view.time)
                assert view.shown() <= expected if partly else view.shown() == expected, (view.number, view.time)
        self.now += 1000
        if self.mode is not Mode.ITA:
            view.tick(self.now)
            assert view.shown() == truth(self.now)
        return view


K0, K1 = col(0, "k"), col(1, "k")
X0, X1 = col(0, "x"), col(1, "x")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_projection_shows_what_is_live(mode, seed):
    story = Story(seed, mode)
    node = ProjectNode(story.leaves[0], [K0, col(0, "s", "string")])
    story.run(node, lambda now: Counter((k, s) for k, _, _, s in story.live(0, now)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_union_all_puts_bags_together(mode, seed):
    story = Story(seed, mode)
    node = UnionNode([ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1])])

    def truth(now):
        return Counter((k,) for number in (0, 1) for k, *_ in story.live(number, now))

    story.run(node, truth)


def joined(story, now, residual):
    left, right = story.live(0, now), story.live(1, now)
    for a in left:
        for b in right:
            if a[0] is not None and a[0] == b[0] and (not residual or (None not in (a[1], b[1]) and a[1] < b[1])):
                yield a, b


@pytest.mark.parametrize(("mode", "made"), JOINS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_pairs_equal_keys(mode, made, residual, seed):
    story = Story(seed, mode, windows=(40, 25) if seed % 2 else (30, 30))
    join = made(story.leaves[0], story.leaves[1], [(K0, K1)], [less(X0, X1)] if residual else [])
    node = ProjectNode(join, [K0, X0, X1])
    view = story.run(node, lambda now: Counter((a[0], a[1], b[1]) for a, b in joined(story, now, residual)))
    assert view.inversions == 0
    counters = view.counters
    assert (counters.negatives > 0) == (mode is Mode.NTA)
    assert (counters.expiry_probes > 0) == (mode is Mode.NTA)
    assert (counters.times > 0) == (mode in (Mode.TIME, Mode.PIGGYBACK))


@pytest.mark.parametrize("mode", [Mode.TIME, Mode.PIGGYBACK])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("keys", [1, 4, 40])
@pytest.mark.parametrize("seed", range(3))
def test_both_joins_say_the_same_tick_by_tick(mode, residual, keys, seed):
    """Also when they have no results to tell of, but some that ended: steps above rely on the time."""
    story = Story(seed, mode, windows=(40, 25), keys=keys)
    others = [stream.leaf(mode, place) for place, stream in enumerate(story.streams)]
    given = [(K0, K1)], [less(X0, X1)] if residual else []
    a, b = story.leaves
    joins = WindowJoinNode(a, b, *given), JoinNode(others[0], others[1], *given)
    views = [View(ProjectNode(join, [K0])) for join in joins]
    taken = [0, 0]
    for _ in range(150):
        story.arrivals()
        for number, (stream, leaf) in enumerate(zip(story.streams, others, strict=True)):
            leaf.arrive(np.arange(taken[number], len(stream.times)), np.array(stream.times[taken[number] :], np.int64))
            taken[number] = len(stream.times)
        said = [view.tick(story.now) for view in views]
        results = [sorted(zip(d.ids.tolist(), d.ts.tolist(), d.exp.tolist(), strict=True)) for d in said]
        assert results[0] == results[1]
        assert said[0].time == said[1].time
        assert views[0].counters == views[1].counters


def test_a_window_holds_no_more_than_lives_however_late_tuples_are():
    """One that ends before others which came earlier goes with these, and memory comes back."""
    stream = Stream(KINDS, 1_000)
    window = JoinWindow(stream.leaf(Mode.PIGGYBACK), [K0])
    window.reserve(0, 3)
    sizes = []
    for n in range(0, 20_000, 10):
        assert not len(window.expire(n))
        ids, ts = np.arange(n, n + 40), n - np.arange(40) * (10 if n < 10_000 else 25)
        window.reserve(40, 3)
        window.append(rows_of(ids.reshape(-1, 1), ts, ts + 1_000, POS), np.arange(40, dtype=np.int32) % 3)
        assert len(window) <= 4_000
        sizes.append(window.nbytes)
    assert max(sizes[200:]) == max(sizes[:200])
    window.expire(20_989)
    assert len(window) == 40  # all but one have ended, behind that one
    window.expire(20_990)
    assert len(window) == 0
    assert window.nbytes < max(sizes) / 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("over_join", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_exists_keeps_those_with_a_partner(mode, negated, over_join, seed):
    if over_join:
        story = Story(seed, mode, windows=(40, 25, 15))
        join = (JoinNode if mode is Mode.NTA else WindowJoinNode)(story.leaves[0], story.leaves[1], [(K0, K1)])
        node = ExistsNode(join, story.leaves[2], [(X0, col(2, "x"))], negated)

        def truth(now):
            there = {x for _, x, *_ in story.live(2, now)} - {None}
            return Counter((a[0], a[1], b[1]) for a, b in joined(story, now, False) if (a[1] in there) != negated)

        # In `ita` the join may have heard of a later time than what stands above it, and miss what ended in between.
        story.run(ProjectNode(node, [K0, X0, X1]), truth, partly=mode is Mode.ITA)
        return
    story = Story(seed, mode, windows=(30, 30) if seed % 2 else (20, 40))
    node = ExistsNode(story.leaves[0], story.leaves[1], [(K0, K1)], negated)

    def truth_of_one(now):
        there = {k for k, *_ in story.live(1, now)} - {None}
        return Counter((k, x) for k, x, *_ in story.live(0, now) if (k in there) != negated)

    view = story.run(ProjectNode(node, [K0, X0]), truth_of_one)
    assert negated or view.inversions == 0, "each knew its end"


def bags(story, now):
    return [Counter((k,) for k, *_ in story.live(number, now)) for number in (0, 1)]


RULES = {
    "intersect all": lambda a, b: a & b,
    "intersect": lambda a, b: Counter(set(a) & set(b)),
    "except all": lambda a, b: a - b,
    "except": lambda a, b: Counter(set(a) - set(b)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_set_operations_count(mode, rule, seed):
    story = Story(seed, mode, windows=(30, 30) if seed % 2 else (40, 25))
    node = SetNode(ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1]), rule)
    view = story.run(node, lambda now: RULES[rule](*bags(story, now)))
    assert rule.startswith("except") or view.inversions == 0, "each knew its end"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("outer", ["intersect all", "except all", "except", "intersect", "union", "distinct"])
@pytest.mark.parametrize("seed", range(2))
def test_retractions_from_below_are_undone(mode, outer, seed):
    """Both inputs may retract: EXCEPT ALL of two streams, and of the same the other way round."""
    story = Story(seed, mode, windows=(30, 45))
    mirrored = [stream.leaf(mode, place) for place, stream in enumerate(story.streams)]
    for leaf, other in zip(story.leaves, mirrored, strict=True):
        leaf.arrive = both_arrive(leaf, other)
    left = SetNode(ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1]), "except all")
    right = SetNode(ProjectNode(mirrored[1], [K1]), ProjectNode(mirrored[0], [K0]), "except")
    node: Step
    if outer == "union":
        node = DistinctNode(UnionNode([left, right]), True)
    elif outer == "distinct":
        node = DistinctNode(left, True)
    else:
        node = SetNode(left, right, outer)

    def truth(now):
        a, b = bags(story, now)
        first, second = a - b, Counter(set(b) - set(a))
        if outer == "union":
            return Counter(set(first) | set(second))
        return Counter(set(first)) if outer == "distinct" else RULES[outer](first, second)

    story.run(node, truth, 80)


def both_arrive(leaf, other):
    arrive = leaf.arrive

    def told(seqs, ts):
        arrive(seqs, ts)
        other.arrive(seqs, ts)

    return told


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("retracted", [False, True])
@pytest.mark.parametrize("over_join", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_distinct_shows_each_row_once(mode, retracted, over_join, seed):
    story = Story(seed, mode)
    if over_join:
        join = (JoinNode if mode is Mode.NTA else WindowJoinNode)(story.leaves[0], story.leaves[1], [(K0, K1)])
        below = ProjectNode(join, [K0, X1])
    else:
        below = ProjectNode(story.leaves[0], [K0, X0])
    node = DistinctNode(below, retracted)

    def truth(now):
        if over_join:
            return Counter({(a[0], b[1]) for a, b in joined(story, now, False)})
        return Counter({(k, x) for k, x, *_ in story.live(0, now)})

    view = story.run(node, truth)
    assert view.inversions == 0
    if not retracted:
        assert node.own_entries() <= 2 * max(len(view.results), 1)
    if mode is not Mode.ITA:
        assert node.own_entries() == 0


AGGREGATES = [
    (Aggregate("count"), None),
    (Aggregate("count", "int"), X0),
    (Aggregate("sum", "int"), X0),
    (Aggregate("avg", "int"), X0),
    (Aggregate("sum", "float"), col(0, "y", "float")),
    (Aggregate("min", "int"), X0),
    (Aggregate("max", "float"), col(0, "y", "float")),
    (Aggregate("median", "int"), X0),
    (Aggregate("count_distinct", "string"), col(0, "s", "string")),
    (Aggregate("max", "string"), col(0, "s", "string")),
    (Aggregate("count", "string"), col(0, "s", "string")),
]


def aggregated(rows):
    xs = [x for _, x, _, _ in rows if x is not None]
    ys = [y for _, _, y, _ in rows if y is not None]
    strings = [s for _, _, _, s in rows if s is not None]
    odd = [y for y in ys if not math.isfinite(y)]
    total = sum(odd) if odd else math.fsum(ys)
    top = None if not ys else math.nan if any(map(math.isnan, ys)) else max(ys)
    return (
        len(rows),
        len(xs),
        sum(xs) if xs else None,
        sum(xs) / len(xs) if xs else None,
        total if ys else None,
        min(xs, default=None),
        top,
        float(statistics.median(xs)) if xs else None,
        len(set(strings)),
        max(strings, default=None),
        len(strings),
    )


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-15)
    return a == b


def result(name, kind="int"):
    return column(Input(RESULT, name, kind))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("having", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_kept_up(mode, keyed, having, seed):
    story = Story(seed, mode)
    aggregates, arguments = zip(*AGGREGATES, strict=True)
    outputs = [result(f"a{n}", one.result_kind) for n, one in enumerate(aggregates)]
    condition = less(result("a1"), result("a0")) if having else None
    keys, shown_keys = ([K0], [result("k0")]) if keyed else ([], [])
    node = GroupNode(story.leaves[0], keys, aggregates, arguments, shown_keys + outputs, condition)
    view = View(node)
    for _ in range(50):
        story.arrivals()
        deltas = view.tick(story.now)
        if mode is Mode.ITA and deltas.time is None:
            continue
        groups: dict[Any, list[Any]] = defaultdict(list)
        if not keyed:
            groups[()] = []
        for row in story.live(0, view.time):
            groups[(row[0],) if keyed else ()].append(row)
        expected = {key: aggregated(rows) for key, rows in groups.items()}
        if having:
            expected = {key: row for key, row in expected.items() if row[1] < row[0]}
        shown = view.shown()
        assert sum(shown.values()) == len(expected)
        for row in shown:
            key, values = (row[:1], row[1:]) if keyed else ((), row)
            assert all(map(same, values, expected[key])), (key, values, expected[key])


@pytest.mark.parametrize("mode", MODES)
def test_a_group_that_does_not_change_is_not_told_again(mode):
    stream = Stream(KINDS, 10)
    leaf = stream.leaf(mode)
    node = GroupNode(leaf, [K0], [Aggregate("max", "int")], [X0], [result("k0"), result("a0")])
    view = View(node)
    stream.add(leaf, [(1, 1, 5, 0.0, "")])
    assert len(view.tick(1)) == 1
    stream.add(leaf, [(2, 1, 3, 0.0, "")])
    assert len(view.tick(2)) == 0
    stream.add(leaf, [(3, 1, 6, 0.0, "")])
    assert view.tick(3).kinds.tolist() == [-2, 1]


@pytest.mark.parametrize("mode", MODES)
def test_sums_of_floats_do_not_drift(mode):
    stream = Stream(KINDS, 10)
    leaf = stream.leaf(mode)
    y = col(0, "y", "float")
    node = GroupNode(leaf, [], [Aggregate("sum", "float")], [y], [result("a0", "float")])
    view = View(node)
    stream.add(leaf, [(1, 1, 1, 1e300, ""), (2, 1, 1, 1e100, ""), (5, 1, 1, 1.0, ""), (6, 1, 1, 1e-30, "")])
    view.tick(6)
    stream.add(leaf, [(12, 1, 1, None, "")])
    view.tick(12)
    assert view.shown() == {(1.0,): 1}
    stream.add(leaf, [(15, 1, 1, None, "")])
    view.tick(15)
    assert view.shown() == {(1e-30,): 1}


@pytest.mark.parametrize(("mode", "made"), JOINS)
def test_memory_follows_what_is_live(mode, made):
    """Ever new keys: neither codes nor entries pile up."""
    story = Story(1, mode, windows=(5, 5))
    node = ProjectNode(made(story.leaves[0], story.leaves[1], [(K0, K1)]), [K0])
    leaf_of_groups = story.streams[0].leaf(mode)
    below = GroupNode(leaf_of_groups, [K0], [Aggregate("count")], [None], [result("k0"), result("a0")])
    view, groups = View(node), View(below)
    sizes = []
    for n in range(300):
        now = 1000 + n
        for leaf, stream in zip(story.leaves, story.streams, strict=True):
            first = len(stream.times)
            stream.add(leaf, [(now, 10 * n + i, 1, 0.0, "") for i in range(10)])
            if stream is story.streams[0]:
                leaf_of_groups.arrive(range_of(first, 10), range_of(now, 1).repeat(10))
        view.tick(now)
        groups.tick(now)
        assert len(view.shown()) == 10 * min(n + 1, 5) == len(groups.shown())
        sizes.append((node.nbytes, below.nbytes))
    assert sizes[-1][0] <= 2 * sizes[40][0]
    assert sizes[-1][1] <= 2 * sizes[40][1]


def range_of(first, count):
    return np.arange(first, first + count)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED", None])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_with_little_time_finds_each_pair_at_most_once(mode, direction, seed):
    """What is shown is always right, though not all; once there is time, nothing is missing that is still live."""
    story = Story(seed, mode, windows=(40, 40))
    preference = None if direction is None else BoundPreference(direction, (), (), 0.9, None, True, True)
    join = JoinNode(story.leaves[0], story.leaves[1], [(K0, K1)], [], preference)
    view = View(ProjectNode(join, [K0, X0, X1]))

    def truth(now):
        return Counter((a[0], a[1], b[1]) for a, b in joined(story, now, False))

    for n in range(120):
        story.arrivals()
        left = story.random.choice([0, 0, 1, 2])

        def allowed():
            nonlocal left
            left -= 1
            return left >= 0

        generous = n % 20 > 15
        view.tick(story.now, None if generous else allowed)
        if mode is Mode.ITA:
            continue
        expected = truth(story.now)
        assert view.shown() <= expected
        if generous:
            assert not join.pending
            assert view.shown() == expected
    assert join.deferred
    assert join.shed > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("retroactive", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_tuples_are_joined_with_rows_of_a_table(mode, retroactive, residual, seed):
    story = Story(seed, mode)
    table = Table("t", {"id": "int", "name": "string", "z": "int"}, "id", retroactive=retroactive)
    join = TableJoinNode(story.leaves[0], "a", table, 1, K0, [less(X0, col(1, "z"))] if residual else [])
    view = View(ProjectNode(join, [K0, X0, col(1, "name", "string")]))
    now_there: dict[int, tuple[str, int | None]] = {}
    then: list[tuple[str, int | None] | None] = []
    random = story.random
    for n in range(80):
        if random.random() < 0.5:
            key = random.randrange(4)
            if key in now_there and random.random() < 0.5:
                table.change(None, [key], {"a": len(story.streams[0].times)})
                del now_there[key]
            else:
                now_there[key] = (f"v{n}", random.choice([None, 0, 2, 3]))
                name, z = now_there[key]
                table.change({"id": [key], "name": [name], "z": [z]}, None, {"a": len(story.streams[0].times)})
        story.arrivals()
        stream = story.streams[0]
        then += [now_there.get(values[0]) for values in stream.values[len(then) :]]
        deltas = view.tick(story.now)
        if mode is Mode.ITA and deltas.time is None:
            continue
        expected: Counter[Any] = Counter()
        for i in stream.live(view.time, story.born[0]):
            key, x, *_ = stream.values[i]
            row = None if key is None else now_there.get(key) if retroactive else then[i]
            if row is not None and (not residual or (None not in (x, row[1]) and x < row[1])):
                expected[key, x, row[0]] += 1
        assert view.shown() == expected
    assert retroactive or view.inversions == 0
    if not retroactive and mode is not Mode.NTA:
        assert join.own_entries() == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_spare_of_a_row_is_the_one_that_ends_last(mode):
    """Late tuples come between: neither the first that outlives what is shown nor the youngest will do."""
    story = Story(0, mode)
    stream, leaf = story.streams[0], story.leaves[0]
    view = View(DistinctNode(ProjectNode(leaf, [K0]), False))
    for n, ts in enumerate([100, 105, 115, 110]):
        stream.add(leaf, [(ts, 1, n, 0.0, "")])
        view.tick(115)
        assert view.shown() == {(1,): 1}
    for now in (141, 146, 151, 154):
        stream.add(leaf, [(now, 2, 0, 0.0, "")])  # so that `ita` hears of the time
        view.tick(now)
        assert view.shown() == {(1,): 1, (2,): 1}, now
    stream.add(leaf, [(155, 3, 0, 0.0, "")])
    view.tick(155)
    assert view.shown() == {(2,): 1, (3,): 1}
