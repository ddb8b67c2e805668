"""Random expressions over random tables give what DuckDB gives: the same values, or both fail."""

import math
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from promising.errors import QueryError
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.scope import Input, StreamScope
from promising.query.scalar.types import ARROW, TOP, Kind
from promising.query.sql import parse
from tests.query.random_expressions import COLUMNS, MACROS, TYPES, Generator, Pair, table

SEEDS = 32
EXPRESSIONS = 100


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect(config={"threads": 1}) as connection:
        # It would drop what cannot matter, such as what is compared with NULL, and then not fail.
        connection.execute("PRAGMA disable_optimizer")
        for macro in MACROS:
            connection.execute(macro)
        yield connection


def ours(sql: str, columns: dict[Input, pa.Array], rows: int) -> tuple[Kind, list[Any] | QueryError]:
    """The kind of the expression and its values, or the error that came instead."""
    compiled = compile_expression(parse(sql).expressions[0], StreamScope(sql, [("r", "r", COLUMNS)]))
    try:
        values = compiled.evaluate(columns, rows)
    except QueryError as error:
        assert compiled.can_fail
        assert error.line is not None
        return compiled.kind, error
    values.validate(full=True)
    assert (len(values), values.type) == (rows, ARROW[compiled.kind])
    if compiled.kind in ("timestamp", "interval"):
        values = values.cast(pa.int64())
    return compiled.kind, values.to_pylist()


def theirs(duck: duckdb.DuckDBPyConnection, kinds: list[Kind], pairs: list[Pair]) -> list[list[Any] | duckdb.Error]:
    """For each expression its values, or the error. All are asked at once, and one by one if any fails."""
    exact = {"timestamp": "epoch_us({})", "interval": "epoch_us({})"}
    texts = [exact.get(kind, "{}").format(pair.theirs) for kind, pair in zip(kinds, pairs, strict=True)]
    try:
        answer = duck.execute(f"SELECT {', '.join(texts)} FROM r").fetchall()
    except duckdb.Error as error:
        if len(pairs) == 1:
            return [error]
        half = len(pairs) // 2
        return theirs(duck, kinds[:half], pairs[:half]) + theirs(duck, kinds[half:], pairs[half:])
    return [[row[n] for row in answer] for n in range(len(pairs))]


def equal(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and isinstance(other, float):
        return (math.isnan(mine) and math.isnan(other)) or math.isclose(mine, other, rel_tol=1e-12, abs_tol=1e-300)
    return type(mine) is type(other) and bool(mine == other)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_duckdb(seed: int, duck: duckdb.DuckDBPyConnection):
    rng = random.Random(seed)
    data = table(rng, rng.choice((1, 5, 17, 40)))
    columns = {Input(0, name, kind): data[name].chunk(0) for name, kind in COLUMNS.items()}
    duck.execute("DROP TABLE IF EXISTS r")
    duck.execute("CREATE TABLE r AS SELECT * FROM data")
    generator = Generator(rng)
    made = [generator.of_any_kind(rng.choice((1, 2, 3))) for _ in range(EXPRESSIONS)]
    kinds = [kind for kind, _ in made]
    pairs = [pair for _, pair in made]
    for (kind, pair), expected in zip(made, theirs(duck, kinds, pairs), strict=True):
        sql = f"SELECT {pair.ours} FROM r"
        where = f"seed {seed}: {sql}\n  as {pair.theirs}"
        found, got = ours(sql, columns, data.num_rows)
        assert found == kind, where
        if isinstance(got, QueryError) and isinstance(expected, list) and set(expected) == {None}:
            # Where one operand is NULL in all rows, DuckDB may not look at the other.
            continue
        if isinstance(expected, duckdb.Error) or isinstance(got, QueryError):
            assert isinstance(expected, duckdb.Error), f"{where}\n  we fail: {got}"
            assert isinstance(got, QueryError), f"{where}\n  DuckDB fails: {expected}"
            continue
        wrong = [n for n, (mine, other) in enumerate(zip(got, expected, strict=True)) if not equal(mine, other)]
        assert not wrong, (
            f"{where}\n  row {data.slice(wrong[0], 1).to_pylist()}: {got[wrong[0]]!r}, DuckDB {expected[wrong[0]]!r}"
        )


assert set(TYPES) | {"null"} == set(ARROW) - set(TOP.values())  # no expression takes a list
