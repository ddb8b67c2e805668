"""The nodes that sqlglot does not have: our statements and the clauses of a preference query.

Strings in `args` (kinds, units, directions) are upper case. Every name is an `exp.Identifier`. Two trees are equal
if they say the same thing; where they were written (`meta["start"]`) does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from sqlglot import exp

from promising.errors import BadClause
from promising.index.instants import FARTHEST

MICROS: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""The units of time, in microseconds. Months and years differ in length and are no units."""


class Node(exp.Expression):
    """A node of ours: written as text by our own dialect, whichever is the default elsewhere."""

    def sql(self, dialect: Any = None, copy: bool = True, **opts: Any) -> str:
        return super().sql(dialect or "promising", copy=copy, **opts)


class Select(exp.Select):
    """A query. Without `preference`, `fade`, `window`, `budget` and `target` it is plain SQL. `distinct` is a bool.

    Queries put together are `exp.Union`, `exp.Intersect` and `exp.Except` (this, expression, distinct: a bool); where
    the word stands is `meta["word"]`, as is that of DISTINCT here.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        **exp.Select.arg_types,
        "preference": False,
        "fade": False,
        "window": False,
        "budget": False,
        "target": False,
    }

    def sql(self, dialect: Any = None, copy: bool = True, **opts: Any) -> str:
        return super().sql(dialect or "promising", copy=copy, **opts)


class CreateStream(Node):
    """`CREATE STREAM this (columns) TIMESTAMP BY time [LATENESS lateness] [OPTIONS (options)]`."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "exists": False,
        "columns": True,
        "time": True,
        "lateness": False,
        "options": False,
    }


class CreateSummary(Node):
    """`CREATE SUMMARY this ON stream (key) WITH GRANULARITY granularity AND COLLAPSE(rate, depth) ...`.

    `structure` is an `exp.Var` in lower case; `node.text("structure")` is its name, or empty.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "exists": False,
        "stream": True,
        "key": True,
        "granularity": True,
        "rate": True,
        "depth": True,
        "structure": False,
        "options": False,
    }


class Option(Node):
    """One `name = value` of OPTIONS; the value is a literal, a negated number, a boolean or a word."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True}


class CreateContinuousQuery(Node):
    """`CREATE CONTINUOUS QUERY this AS query`: a Select, or queries put together."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "exists": False, "query": True}


class AlterQuery(Node):
    """`ALTER QUERY this SET BUDGET budget`, or without one `DROP BUDGET`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "budget": False}


class CreateTable(Node):
    """`CREATE TABLE this (columns, PRIMARY KEY (key)) RETROACTIVE`, or NON RETROACTIVE. The columns are ColumnDefs."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "exists": False,
        "columns": True,
        "key": True,
        "retroactive": False,
    }


class TableChange(Node):
    """A change of the table `this`; its kind is INSERT, UPSERT, UPDATE or DELETE. Values have no columns in them.

    INSERT and UPSERT: `columns` (names, maybe none) and `rows`. UPDATE: `assignments`, and the one of `keys` that the
    column `key` must equal. DELETE: `key` and one or more `keys`.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": True,
        "columns": False,
        "rows": False,
        "assignments": False,
        "key": False,
        "keys": False,
    }


class Row(Node):
    """The values of one row, in parentheses. It can be iterated over."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}

    def __len__(self) -> int:
        return len(self.expressions)


class Assignment(Node):
    """`this = value` of an UPDATE. It can be unpacked: `column, value = assignment`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True}

    def __iter__(self) -> Iterator[exp.Expression]:
        return iter((self.this, self.args["value"]))


class Show(Node):
    """`SHOW kind`: STREAMS, SUMMARIES, TABLES or QUERIES."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True}


class Describe(Node):
    """`DESCRIBE this`."""


class Drop(Node):
    """`DROP kind this`: a STREAM, SUMMARY, TABLE or QUERY."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": True, "exists": False, "cascade": False}


class Explain(Node):
    """`EXPLAIN [ANALYZE] this`: a query or, without ANALYZE, a CreateContinuousQuery."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "analyze": False}


class Preference(Node):
    """`WITH PREFERENCE direction expressions`; the direction is ASC, DESC or WEIGHTED."""

    arg_types: ClassVar[dict[str, bool]] = {"direction": True, "expressions": True}


class SummaryEstimate(Node, exp.Condition):
    """`SUMMARY.Estimate.Count(this)`: COUNT, or its LOWER or UPPER bound, for the value of a column."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "what": True}


class ErrorTarget(Node):
    """`WITH ERROR error [CONFIDENCE confidence]`: go on until the aggregates are known that well."""

    arg_types: ClassVar[dict[str, bool]] = {"error": True, "confidence": False}


class Span(Node):
    """A length of time in a clause: `60 SECONDS`. Without a unit it is in seconds, as the paper writes it."""

    arg_types: ClassVar[dict[str, bool]] = {"amount": True, "unit": False}

    @property
    def micros(self) -> int:
        """Exactly this many microseconds. Raises BadClause where that is no whole number, or beyond `FARTHEST`."""
        amount = self.args["amount"]
        sign, number = ("-", amount.this) if isinstance(amount, exp.Neg) else ("", amount)
        return whole_micros(sign + number.this, self.args.get("unit") or "SECOND")


def interval_micros(node: exp.Interval) -> int:
    """Microseconds of an interval inside an expression. Raises BadClause as `Span.micros` does."""
    return whole_micros(node.this.this, node.args["unit"].this)


def whole_micros(amount: str, unit: str) -> int:
    """`amount` units in microseconds, exactly. Raises BadClause where that is no whole number, or beyond `FARTHEST`."""
    shown = f"{amount} {unit.lower()}s"
    try:
        number = Decimal(amount)
    except InvalidOperation:
        raise BadClause(f"'{amount}' is no number of {unit.lower()}s") from None
    # Looked at before it is multiplied: a number like 1e999999 would fill the memory as an integer.
    if not number.is_finite() or (number and number.adjusted() > 20):
        raise BadClause(f"{shown}: longer than any span of time here")
    if number and number.adjusted() < -20:
        raise BadClause(f"{shown}: not a whole number of microseconds")
    top, bottom = number.as_integer_ratio()
    micros, rest = divmod(top * MICROS[unit], bottom)
    if rest:
        raise BadClause(f"{shown}: not a whole number of microseconds")
    if abs(micros) > FARTHEST:
        raise BadClause(f"{shown}: longer than any span of time here")
    return micros


def word_of(node: exp.Expr) -> int | None:
    """Where DISTINCT, or the word between two queries, stands."""
    found: int | None = node.meta.get("word")
    return found


def selects(node: exp.Expression) -> Iterator[exp.Expression]:
    """The SELECTs that a query is put together from, from left to right."""
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.SetOperation):
            stack += [top.args["expression"], top.args["this"]]
        else:
            yield top


def connect(kind: type[exp.And] | type[exp.Or], operands: Sequence[exp.Expression]) -> exp.Expression:
    """One tree of AND (or OR) over one or more operands, in order, of logarithmic height.

    AND and OR are associative, so `a AND (b AND c)` and `a AND b AND c` are one tree, and a chain of thousands is as
    safe to walk as a short one.
    """
    if len(operands) == 1:
        return operands[0]
    half = (len(operands) + 1) // 2
    left, right = connect(kind, operands[:half]), connect(kind, operands[half:])
    node = kind(this=left, expression=right)
    if (start := left.meta.get("start")) is not None:
        node.meta["start"] = start
    return node


def operands(node: exp.Expression) -> Iterator[exp.Expression]:
    """What a chain of AND (or OR) connects, in order; a node of another kind is its own only operand."""
    kind = type(node)
    if kind is not exp.And and kind is not exp.Or:
        yield node
        return
    stack: list[exp.Expression] = [node]
    while stack:
        top = stack.pop()
        if type(top) is kind:
            stack += [top.args["expression"], top.args["this"]]
        else:
            yield top
