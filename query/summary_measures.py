"""MEASURES in statements."""

from collections.abc import Iterable, Sequence

from sqlglot import exp

from promising.errors import BadMeasure, NoSuchName, UnknownMeasure
from promising.index import Stream, SummaryIndex
from promising.query.error_places import placed
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest
from promising.query.sql import nodes
from promising.summaries.cells import KINDS, Measure, as_number, kind_of


def read_measures(found: Sequence[nodes.Measure], stream: Stream, sql: str) -> list[Measure]:
    """The measures of a statement; one that is unknown, does not fit or is there twice is an error at its place."""
    out: list[Measure] = []
    for node in found:
        measure = _read(node, stream, sql)
        with placed(sql, node):
            if measure in out:
                raise BadMeasure(f"{measure.sql} is given twice; name it once")
        out.append(measure)
    return out


def _read(node: nodes.Measure, stream: Stream, sql: str) -> Measure:
    types, kind, column = stream.schema.types, node.text("this"), node.args.get("column")
    if kind.lower() not in KINDS:
        hint = suggest(kind, map(str.upper, KINDS)) or f"; there are {', '.join(map(str.upper, sorted(KINDS)))}"
        with placed(sql, node):
            raise BadMeasure(f"unknown measure {kind}{hint}")
    name = None
    if column is not None:
        name = next((known for known in types if known.lower() == column.name.lower()), None)
        if name is None:
            hint = suggest(column.name, types) or f"; columns are {', '.join(types)}"
            raise NoSuchName(f"no column {column.name!r} in {stream.name}{hint}", sql, offset_of(column))
    measure = Measure(kind.lower(), name, tuple(map(_number, node.expressions)))
    with placed(sql, column or next(iter(node.expressions), node)):
        kind_of(measure, types, stream.seed)
    return measure


def check_change(summary: SummaryIndex, measure: Measure, adding: bool) -> None:
    """Whether a summary may add or drop a measure: it must not have it, or have it."""
    has = [kind.measure for kind in summary.kinds]
    if adding and measure in has:
        raise BadMeasure(f"summary {summary.name!r} measures {measure.sql} already")
    if not adding and measure not in has:
        known = ", ".join(one.sql for one in has) or "none"
        raise UnknownMeasure(f"summary {summary.name!r} does not measure {measure.sql}; its measures are: {known}")


def _number(node: exp.Expression) -> float:
    return -as_number(node.this.this) if isinstance(node, exp.Neg) else as_number(node.this)


def measure_nodes(measures: Iterable[Measure]) -> list[nodes.Measure]:
    return [
        nodes.Measure(
            this=exp.Var(this=measure.kind.upper()),
            column=None if measure.column is None else exp.to_identifier(measure.column),
            expressions=[_literal(number) for number in measure.arguments],
        )
        for measure in measures
    ]


def _literal(number: float) -> exp.Expression:
    literal = exp.Literal.number(repr(abs(number)))
    return exp.Neg(this=literal) if number < 0 else literal
