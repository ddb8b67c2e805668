"""A SELECT with every name resolved: what the planner works from."""

from dataclasses import dataclass, field

from sqlglot import exp

from promising.index import Stream, SummaryIndex
from promising.query.aggregate.aggregates import Aggregate
from promising.query.preference import BoundPreference
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Scope

RESULT = -1
"""The source of inputs that stand for group keys (k0, k1, ...) and aggregates (a0, a1, ...)."""


@dataclass(frozen=True)
class Source:
    """One stream of FROM."""

    stream: Stream
    alias: str


@dataclass(frozen=True)
class JoinKey:
    """The equality that two streams are joined on.

    `attributes[side]` is the column, None where it is an expression; `summaries[side]` what knows that column. `values`
    are the expressions, brought to one kind.
    """

    values: tuple[Compiled, Compiled]
    attributes: tuple[str | None, str | None]
    summaries: tuple[SummaryIndex | None, SummaryIndex | None]
    condition: exp.Expression


@dataclass(frozen=True)
class Constants:
    """`attribute = constant` or `attribute IN (constants)`: the only keys of a side that can be in the answer."""

    side: int
    attribute: str
    values: list[int] | list[str]
    condition: exp.Expression


@dataclass(frozen=True)
class Order:
    value: Compiled
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Target:
    """Stop when every aggregate is known within `error` of its value, with this confidence."""

    error: float
    confidence: float


@dataclass
class Bound:
    """The query. Expressions of a plain query are over columns; with `aggregates`, those of `outputs`, `having` and
    `order` are over group keys and aggregates."""

    scope: Scope
    sources: list[Source]
    names: list[str]
    outputs: list[Compiled]
    predicates: list[Compiled]
    conditions: list[exp.Expression]
    """What the predicates were compiled from."""
    join: JoinKey | None
    constants: Constants | None
    unaided: SummaryIndex | None = None
    """A summary of a key that conditions name: it might have helped, but has no structure for now."""
    results: Scope | None = None
    """What names mean in `outputs`, `having` and `order`."""
    items: list[tuple[exp.Expression, str]] = field(default_factory=list)
    """What the outputs were compiled from, stars spelled out, under the names they were given."""
    grouped: bool = False
    group_keys: list[Compiled] = field(default_factory=list)
    terms: list[exp.Expression] = field(default_factory=list)
    """What the group keys were compiled from."""
    aggregates: list[Aggregate] = field(default_factory=list)
    arguments: list[Compiled | None] = field(default_factory=list)
    calls: list[exp.Expression] = field(default_factory=list)
    """What the aggregates were read from."""
    shown: list[int | None] = field(default_factory=list)
    """For each output the number of the aggregate that it is, None where it is anything else."""
    having: Compiled | None = None
    order: list[Order] = field(default_factory=list)
    limit: int | None = None
    preference: BoundPreference | None = None
    window: int | None = None
    budget: int | None = None
    """CPU time, in microseconds."""
    target: Target | None = None
    warnings: list[str] = field(default_factory=list)
