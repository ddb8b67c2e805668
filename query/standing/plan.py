"""The logical plan of a standing query, from which operators are built."""

from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from promising.index import Stream
from promising.index.table import Table
from promising.query.aggregate.aggregates import Aggregate
from promising.query.preference import BoundPreference
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.types import Kind


@dataclass(frozen=True)
class Window:
    """Tuples of the last `length` microseconds (None: all ever) that satisfy all `predicates`, with source `place`."""

    stream: Stream
    length: int | None
    place: int = 0
    predicates: tuple[Compiled, ...] = ()
    conditions: tuple[exp.Expression, ...] = ()  # the uncompiled `predicates`
    alias: str = ""


@dataclass(frozen=True)
class Join:
    """Pairs with equal keys that satisfy the `residual`: ids (seq of left, seq of right), sources 0 and 1."""

    left: Window
    right: Window
    keys: tuple[tuple[Compiled, Compiled], ...]  # each pair has one kind
    residual: tuple[Compiled, ...] = ()


@dataclass(frozen=True)
class TableJoin:
    """Tuples with the row of their key: ids (seq, row version), sources `window.place` and `place`."""

    window: Window
    table: Table
    place: int
    key: Compiled  # of the stream; has the kind of the table's primary key
    residual: tuple[Compiled, ...] = ()


@dataclass(frozen=True)
class Exists:
    """Tuples of `left` with (`negated`: without) a tuple of `right` of equal keys; each key uses its own places."""

    left: "Window | Join"
    right: Window
    keys: tuple[tuple[Compiled, Compiled], ...]
    negated: bool


Body: TypeAlias = Window | Join | TableJoin | Exists


@dataclass(frozen=True)
class StandingSelect:
    """One SELECT: its input and its output expressions.

    Without grouping, `outputs` are over the body's sources. With it, `keys` and `arguments` are, and `outputs` and
    `having` are over group keys, Input(RESULT, "k0"), ..., and aggregates, "a0", ..., as in `query.bound.Bound`.
    """

    body: Body
    outputs: tuple[Compiled, ...]
    distinct: bool = False
    grouped: bool = False
    keys: tuple[Compiled, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    arguments: tuple[Compiled | None, ...] = ()
    having: Compiled | None = None


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two queries with the same number and kinds of columns."""

    operator: str  # union, intersect or except
    all: bool
    left: "Query"
    right: "Query"


Query: TypeAlias = StandingSelect | SetOperation


@dataclass(frozen=True)
class Standing:
    root: Query
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    statement: str  # in canonical form
    reads: frozenset[str]  # lower-case names of streams, tables and summaries
    preference: BoundPreference | None = None
    budget: int | None = None  # CPU microseconds per second; None: unlimited
    warnings: tuple[str, ...] = field(default_factory=tuple)


def windows(query: Query) -> list[Window]:
    if isinstance(query, SetOperation):
        return windows(query.left) + windows(query.right)
    body = query.body
    if isinstance(body, Window):
        return [body]
    if isinstance(body, Join):
        return [body.left, body.right]
    if isinstance(body, TableJoin):
        return [body.window]
    return [*windows(StandingSelect(body.left, ())), body.right]
