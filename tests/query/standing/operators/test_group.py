"""Groups and their aggregates, kept up as tuples come and end."""

import math
import statistics
from collections import defaultdict
from typing import Any

import pytest

from promising.query.aggregate.aggregates import Aggregate
from promising.query.standing.deltas import Mode
from promising.query.standing.operators.group import GroupNode
from tests.query.standing.harness import Stream, View, col
from tests.query.standing.operators.story import K0, KINDS, MODES, X0, Story, less, result

pytestmark = pytest.mark.kernel

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
