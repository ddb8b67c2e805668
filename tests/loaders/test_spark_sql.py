"""Random expressions over random tables, written for Spark, give what the service gives."""

import math
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from promising.errors import QueryError, Unsupported
from promising.loaders.shipping import undisturbed
from promising.loaders.spark_expressions import TYPES, Writer
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.scope import Input, StreamScope
from promising.query.sql import parse
from tests.query.random_expressions import COLUMNS, Generator, table

pytestmark = pytest.mark.spark

SEEDS = 2
EXPRESSIONS = 120
AT_ONCE = 60


def asked(rng: random.Random, data: pa.Table) -> list[tuple[str, str, list[Any]]]:
    """Expressions that have a value for each row and can be written for Spark: ours, Spark's, and their values."""
    columns = {Input(0, name, kind): data[name].chunk(0) for name, kind in COLUMNS.items()}
    found = []
    generator = Generator(rng)
    for _ in range(EXPRESSIONS):
        _, pair = generator.of_any_kind(rng.choice((1, 2, 3)))
        sql = f"SELECT {pair.ours} FROM r"
        scope = StreamScope(sql, [("r", "r", COLUMNS)])
        (node,) = parse(sql).expressions
        compiled = compile_expression(node, scope)
        try:
            written = Writer(scope, lambda column: f"`{column.name}`").write(node, "int")
            values = compiled.evaluate(columns, data.num_rows)
        except (QueryError, Unsupported):
            continue
        if compiled.kind != "null":
            assert written.kind == compiled.kind, sql
        found.append((pair.ours, written.sql, plain(values, compiled.kind)))
    return found


def plain(values: Any, kind: str) -> list[Any]:
    if kind in ("timestamp", "interval"):
        values = values.cast(pa.int64())
    found: list[Any] = values.to_pylist()
    return found


def theirs(spark: Any, texts: list[str]) -> list[Any]:
    """The values of each, or the error; all at once, and fewer if that fails."""
    shown = ", ".join(f"{text} AS `c{n}`" for n, text in enumerate(texts))
    try:
        answer = spark.sql(f"SELECT `place`, {shown} FROM expressions_r").toArrow().sort_by("place")
    except Exception as problem:
        if len(texts) == 1:
            return [problem]
        half = len(texts) // 2
        return theirs(spark, texts[:half]) + theirs(spark, texts[half:])
    out = []
    for n in range(len(texts)):
        column = answer[f"c{n}"].combine_chunks()
        timed = pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type)
        out.append(plain(column, "timestamp" if timed else "other"))
    return out


def equal(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and isinstance(other, float):
        return (math.isnan(mine) and math.isnan(other)) or math.isclose(mine, other, rel_tol=1e-12, abs_tol=1e-300)
    return type(mine) is type(other) and bool(mine == other)


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """A session of its own, which is the active one no longer than the test."""
    with undisturbed(spark):
        yield spark.newSession()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_the_service(seed: int, session: Any):
    rng = random.Random(f"spark {seed}")
    data = table(rng, 25)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    kinds = {name: TYPES[kind] for name, kind in COLUMNS.items()}
    given = data.append_column("place", pa.array(range(data.num_rows), pa.int64()))
    fields = [(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in given.schema]
    frame = session.createDataFrame(given.cast(pa.schema(fields)))
    frame = frame.selectExpr("`place`", *(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in kinds.items()))
    frame.createOrReplaceTempView("expressions_r")
    made = asked(rng, data)
    assert len(made) > EXPRESSIONS // 3
    wrong = []
    for at in range(0, len(made), AT_ONCE):
        part = made[at : at + AT_ONCE]
        for (ours, text, values), other in zip(part, theirs(session, [t for _, t, _ in part]), strict=True):
            if isinstance(other, Exception) and "several letters of one" in str(other):
                continue  # a row that Spark cannot treat alike, and it says so
            if isinstance(other, Exception):
                wrong.append(f"{ours}\n  as {text}\n  Spark fails: {str(other)[:300]}")
                continue
            bad = [n for n, pair in enumerate(zip(values, other, strict=True)) if not equal(*pair)]
            if bad:
                row = data.slice(bad[0], 1).to_pylist()
                wrong.append(f"{ours}\n  as {text}\n  row {row}: {values[bad[0]]!r}, Spark {other[bad[0]]!r}")
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(made)}\n" + "\n".join(wrong)
