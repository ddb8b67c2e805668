"""Tuples joined with rows of a table, as it is or as it was."""

from collections import Counter
from typing import Any

import pytest

from promising.index.table import Table
from promising.query.standing.deltas import Mode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.table_join import TableJoinNode
from tests.query.standing.harness import View, col
from tests.query.standing.operators.story import K0, MODES, X0, Story, less

pytestmark = pytest.mark.kernel


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
