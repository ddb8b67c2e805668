"""A SELECT with all names resolved: the input of the planner."""

from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from promising.index import Stream, SummaryIndex
from promising.query.aggregate.aggregates import Aggregate
from promising.query.preference import BoundPreference
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input, Scope

RESULT = -1  # source of inputs that are group keys (k0, k1, ...) or aggregates (a0, a1, ...)


@dataclass(frozen=True)
class Source:
    """A stream in FROM, or the view of a continuous query: its current rows as a stream, with a time of no meaning."""

    stream: Stream
    alias: str
    is_view: bool = False

    @cached_property
    def types(self) -> dict[str, str]:
        """The columns that a query may name."""
        hidden = self.stream.schema.time if self.is_view else None
        return {name: kind for name, kind in self.stream.schema.types.items() if name != hidden}


@dataclass(frozen=True)
class JoinKey:
    """The equality that joins two streams. `values` have a common type; an attribute is None if not a column."""

    values: tuple[Compiled, Compiled]
    attributes: tuple[str | None, str | None]
    summaries: tuple[SummaryIndex | None, SummaryIndex | None]
    condition: exp.Expression


@dataclass(frozen=True)
class Constants:
    """`attribute = constant` or `attribute IN (constants)`: only these keys of a side can be in the answer."""

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
class LimitBy:
    """At most `most` rows, 1 or more, of each combination of values of `columns`; `terms` is their source."""

    most: int
    columns: tuple[Compiled, ...]
    terms: tuple[exp.Expression, ...]


@dataclass(frozen=True)
class Target:
    """Stop when every aggregate has at most this relative error, with this confidence."""

    error: float
    confidence: float


@dataclass
class Bound:
    """Expressions read columns; with `aggregates`, `outputs`, `having` and `order` read group keys and aggregates."""

    scope: Scope
    sources: list[Source]
    names: list[str] = field(default_factory=list)
    outputs: list[Compiled] = field(default_factory=list)
    described: bool = False
    """Whether `names` and `outputs` are complete; the rest may still have to be bound."""
    predicates: list[Compiled] = field(default_factory=list)
    conditions: list[exp.Expression] = field(default_factory=list)  # source of `predicates`
    join: JoinKey | None = None
    constants: Constants | None = None
    unaided: SummaryIndex | None = None
    """A summary on a key in the conditions, unusable because it has no structure at the moment."""
    results: Scope | None = None  # scope of `outputs`, `having` and `order`
    items: list[tuple[exp.Expression | Input, str]] = field(default_factory=list)
    """Source of `outputs`, with their names; of a star, its columns."""
    grouped: bool = False
    group_keys: list[Compiled] = field(default_factory=list)
    terms: list[exp.Expression] = field(default_factory=list)  # source of `group_keys`
    aggregates: list[Aggregate] = field(default_factory=list)
    arguments: list[Compiled | None] = field(default_factory=list)
    calls: list[exp.Expression] = field(default_factory=list)  # source of `aggregates`
    shown: list[int | None] = field(default_factory=list)
    """For each output, the number of its aggregate; None for any other expression."""
    having: Compiled | None = None
    order: list[Order] = field(default_factory=list)
    limit_by: LimitBy | None = None
    limit: int | None = None
    preference: BoundPreference | None = None
    window: int | None = None
    budget: int | None = None  # CPU time, in microseconds
    target: Target | None = None
    warnings: list[str] = field(default_factory=list)

    def spelled(self, item: exp.Expression | Input) -> exp.Expression:
        """The expression of one of `items`."""
        if not isinstance(item, Input):
            return item
        return exp.column(item.name, table=self.sources[item.source].alias, quoted=True)


def used_columns(bound: Bound, side: int) -> list[str]:
    """The columns of a stream that the query looks at, in the order of its schema."""
    joined = () if bound.join is None else bound.join.values
    parts = [*bound.outputs, *bound.predicates, *bound.group_keys, *bound.arguments, *joined]
    parts += [order.value for order in bound.order]
    parts += () if bound.limit_by is None else bound.limit_by.columns
    names = {i.name for part in parts if part is not None for i in part.inputs if i.source == side}
    return [name for name in bound.sources[side].stream.schema.types if name in names]
