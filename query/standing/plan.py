"""The logical plan of a standing query: what binding makes of the text, and what operators are built from."""

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
    """The tuples of a stream of the last `length` microseconds that meet all `predicates`; None: all there ever were.

    The predicates' inputs have source `place`, and `conditions` is what they were compiled from.
    """

    stream: Stream
    length: int | None
    place: int = 0
    predicates: tuple[Compiled, ...] = ()
    conditions: tuple[exp.Expression, ...] = ()
    alias: str = ""


@dataclass(frozen=True)
class Join:
    """Pairs of tuples with equal keys that meet the `residual`. Inputs of expressions: source 0 left, source 1 right.

    Ids of its results: (seq of left, seq of right).
    """

    left: Window
    right: Window
    keys: tuple[tuple[Compiled, Compiled], ...]
    """Each pair has one kind."""
    residual: tuple[Compiled, ...] = ()


@dataclass(frozen=True)
class TableJoin:
    """Tuples with the row of a table that has their key. Source `window.place` is the stream, `place` the table.

    Ids of its results: (seq of the tuple, version number of the row).
    """

    window: Window
    table: Table
    place: int
    key: Compiled
    """Of the stream; of the kind of the table's primary key."""
    residual: tuple[Compiled, ...] = ()


@dataclass(frozen=True)
class Exists:
    """Tuples of `left` that have (or with `negated`, have not) a tuple of `right` with equal keys.

    Inputs: keys[i][0] over the left (its own places), keys[i][1] over the right window (its own place).
    """

    left: "Window | Join"
    right: Window
    keys: tuple[tuple[Compiled, Compiled], ...]
    negated: bool


Body: TypeAlias = Window | Join | TableJoin | Exists


@dataclass(frozen=True)
class StandingSelect:
    """One SELECT: what it reads, and the values it shows.

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
    """UNION, INTERSECT or EXCEPT of two queries with as many columns of the same kinds."""

    operator: str
    """union, intersect or except."""
    all: bool
    left: "Query"
    right: "Query"


Query: TypeAlias = StandingSelect | SetOperation


@dataclass(frozen=True)
class Standing:
    """A continuous query."""

    root: Query
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    statement: str
    """In canonical form."""
    reads: frozenset[str]
    """Lower-case names of streams, tables and summaries."""
    preference: BoundPreference | None = None
    budget: int | None = None
    """CPU time a second, in microseconds; None: what there is."""
    warnings: tuple[str, ...] = field(default_factory=tuple)


def windows(query: Query) -> list[Window]:
    """All windows of a query, from left to right."""
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
