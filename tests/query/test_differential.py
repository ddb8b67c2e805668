"""Random queries over random streams give what DuckDB gives over the tuples that a model says the streams hold.

Every query runs without a preference, and with one in each direction where that is legal; without a budget all must
give the same rows. A failure names its block and query: `DIFFERENTIAL=12:37 pytest tests/query/test_differential.py`
repeats query 37 of block 12 alone, and `DIFFERENTIAL=12` the whole block.
"""

import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from promising.index.storage.disk import Disk
from promising.index.storage.spill import SpillFolder
from promising.query.query_memory import QueryMemory
from tests.query.random_queries import Generator, Query
from tests.query.random_streams import World
from tests.query.spilling import PLENTY, spill_early

BLOCKS, QUICK_BLOCKS = 41, 8
QUERIES = 50
PHASES = 5

ONLY_BLOCK, _, ONLY_QUERY = os.environ.get("DIFFERENTIAL", "").partition(":")
Column = list[Any]
COOLED: dict[int, int] = {}


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def block_params() -> list[Any]:
    if ONLY_BLOCK:
        return [int(ONLY_BLOCK)]
    more = pytest.mark.deep("more of the same random queries")
    return [pytest.param(block, marks=[] if block < QUICK_BLOCKS else [more]) for block in range(BLOCKS)]


@pytest.mark.parametrize("block", block_params())
def test_as_duckdb(block: int, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch):
    _compare(World(block, monkeypatch), block, duck)


@pytest.mark.parametrize("block", block_params()[5::6])
def test_spilled_as_duckdb(
    block: int, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    spill_early(monkeypatch)
    world = World(block, monkeypatch)
    world.session._memory = QueryMemory(PLENTY)
    world.session._spill = folder = SpillFolder(Disk(), tmp_path, 0)
    _compare(world, block, duck)
    assert list(folder.folder.iterdir()) == []
    assert world.session.query_bytes == 0


def _compare(world: World, block: int, duck: duckdb.DuckDBPyConnection) -> None:
    size = world.rng.choice((4, 40, 40, 80, 80, 160))
    if block % 8 == 7:  # before the first tuple
        _queries(world, block, -3, 0, duck)
    for phase in range(PHASES):
        world.grow(size)
        _queries(world, block, phase * QUERIES // PHASES, (phase + 1) * QUERIES // PHASES, duck)
    COOLED[block] = world.cooled


@pytest.mark.deep("looks back at all random queries")
def test_some_of_the_tuples_were_cold():
    assert ONLY_BLOCK or sum(cooled > 3 for cooled in COOLED.values()) > 5


def _queries(world: World, block: int, first: int, last: int, duck: duckdb.DuckDBPyConnection) -> None:
    world.tables(duck)
    for number in range(first, last):
        if ONLY_QUERY and number != int(ONLY_QUERY):
            continue
        rng = random.Random(f"query {block} {number}")
        generator = Generator(rng, world.models)
        query = generator.query()
        now = max((m.now for s, _ in query.sources if (m := world.models[s]).now is not None), default=None)
        theirs = query.theirs(now)
        expected = [list(column) for column in zip(*duck.execute(theirs).fetchall(), strict=True)]
        for asked in [query, *generator.preferred(query)]:
            where = f"DIFFERENTIAL={block}:{number}\n  ours:   {asked.ours()}\n  theirs: {theirs}"
            try:
                answer = world.session.query(asked.ours(), seed=number)
                table = answer.to_arrow()
            except Exception as problem:
                problem.add_note(where)
                raise
            got = [column.to_pylist() for column in table.columns]
            problem_found = difference(asked, got, expected)
            assert problem_found is None, f"{where}\n  {problem_found}"
            assert answer.progress.complete, where
            assert answer.progress.rows == table.num_rows, where


def test_the_worlds_have_all_there_is():
    """Or the test above proves less than it says."""
    structures, granularities, refused = set(), set(), set()
    expired = keys = 0
    for block in range(8):
        world = World(block)
        for _ in range(PHASES):
            world.grow(60)
        for model in world.models.values():
            structures |= {structure for _, structure in model.summaries.values()}
            granularities |= model.granularities()
            refused |= set(model.refused)
            expired += len(model.accepted) - len(model.live())
            keys = max(keys, len(model.known))
    assert structures == {"none", "time", "grid", "adaptive"}
    assert granularities >= {1, 2, 3, 4}
    assert refused == {"too_old", "too_far_ahead"}
    assert expired > 100
    assert keys > 2


# --- comparing ---------------------------------------------------------------------------------------------------


def difference(query: Query, got: list[Column], expected: list[Column]) -> str | None:
    """What is wrong with an answer, given the whole one without LIMIT; None if nothing is."""
    found, whole = len(got[0]), len(expected[0]) if expected else 0
    wanted = whole if query.limit is None else min(whole, query.limit)
    if found != wanted:
        return f"{found} rows, DuckDB {whole}, LIMIT {query.limit}{_sample(got, expected)}"
    if not found:
        return None
    for place, (mine, other) in enumerate(zip(got, expected, strict=True)):
        types = {type(v) for v in mine} - {type(None)}
        if not types <= {type(v) for v in other}:
            return f"column {place}: {types}, DuckDB {sorted({type(v).__name__ for v in other})}"
    if query.total:
        for place, (mine, other) in enumerate(zip(got, expected, strict=True)):
            if (at := _first_unequal(mine, other)) is not None:
                return f"row {at}, column {place}: {mine[at]!r}, DuckDB {other[at]!r}"
        return None
    for place in query.sorted_by:
        if (at := _first_unequal(got[place], expected[place])) is not None:
            return f"order, row {at}, column {place}: {got[place][at]!r}, DuckDB {expected[place][at]!r}"
    if found == whole and query.grouped:
        return _about_equal(got, expected)
    if query.grouped:
        strange = [row for row in zip(*got, strict=True) if not _near_any(row, expected)]
        return f"not in the answer: {strange[0]!r}" if strange else None
    counts = [Counter(zip(*map(_plain, columns), strict=True)) for columns in (got, expected)]
    extra = counts[0] - counts[1]
    missing = counts[1] - counts[0] if found == whole else Counter()
    if extra or missing:
        return f"too much: {extra.most_common(3)}, missing: {missing.most_common(3)}"
    return None


def _sample(got: list[Column], expected: list[Column]) -> str:
    mine, other = (Counter(map(str, zip(*columns, strict=True))) for columns in (got, expected))
    return f"; too much: {(mine - other).most_common(3)}, missing: {(other - mine).most_common(3)}"


def _plain(column: Column) -> Column:
    """Values that are equal where SQL says they are, and NaN is NaN."""
    if any(isinstance(v, float) for v in column):
        return ["NaN" if isinstance(v, float) and math.isnan(v) else v for v in column]
    return column


def _first_unequal(mine: Column, other: Column) -> int | None:
    """The first place where two columns differ, of as many as both have."""
    if mine == other:
        return None
    return next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if not near(a, b)), None)


def near(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and isinstance(other, float):
        return (math.isnan(mine) and math.isnan(other)) or math.isclose(mine, other, rel_tol=1e-9, abs_tol=1e-9)
    return type(mine) is type(other) and bool(mine == other)


def _about_equal(got: list[Column], expected: list[Column]) -> str | None:
    """Rows in any order, floats nearly equal: sorted alike, those that are equal stand side by side."""
    exact = [n for n, column in enumerate(expected) if not any(isinstance(v, float) for v in column)]
    places = exact + [n for n in range(len(expected)) if n not in exact]
    mine, other = (sorted(zip(*(columns[p] for p in places), strict=True), key=_key) for columns in (got, expected))
    for a, b in zip(mine, other, strict=True):
        if not all(map(near, a, b)):
            return f"group {a!r}, DuckDB {b!r}"
    return None


def _key(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((v is None, isinstance(v, float) and math.isnan(v), "" if _odd(v) else v) for v in row)


def _odd(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _near_any(row: tuple[Any, ...], expected: list[Column]) -> bool:
    return any(all(map(near, row, other)) for other in zip(*expected, strict=True))
