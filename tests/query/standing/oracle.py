"""What a continuous query must show: its meaning in plain Python, one tuple at a time.

A query is a small structure that knows its own text and its own meaning, so nothing here reads SQL, and nothing of the
engine is used. `test_oracle` holds it against DuckDB.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Env: TypeAlias = dict[str, Row]
"""Rows by alias; after GROUP BY the alias is empty, and the columns are k0... and a0..."""
Bag: TypeAlias = "Counter[tuple[Any, ...]]"
LONG_AGO = -(1 << 62)


# --- scalars -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expr:
    """An expression: its text, its kind, and its value; None is NULL, and truth has three values."""

    text: str
    kind: str
    of: Callable[[Env], Any] = field(compare=False)

    def __str__(self) -> str:
        return self.text


def column(alias: str, name: str, kind: str) -> Expr:
    return Expr(f"{alias}.{name}", kind, lambda env: env[alias][name])


def literal(value: Any, kind: str) -> Expr:
    text = {"string": lambda: "'" + value.replace("'", "''") + "'", "bool": lambda: str(value).upper()}.get(
        kind, lambda: repr(value)
    )()
    return Expr(text, kind, lambda env: value)


def strict(text: str, kind: str, function: Callable[..., Any], *parts: Expr) -> Expr:
    """NULL if any part is."""

    def value(env: Env) -> Any:
        values = [part.of(env) for part in parts]
        return None if any(v is None for v in values) else function(*values)

    return Expr(text, kind, value)


def remainder(left: int, right: int) -> int:
    """With the sign of the left, as SQL has it."""
    found = abs(left) % abs(right)
    return -found if left < 0 else found


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": remainder,
}


def arithmetic(operator: str, left: Expr, right: Expr) -> Expr:
    kind = "float" if "float" in (left.kind, right.kind) else "int"
    return strict(f"({left} {operator} {right})", kind, ARITHMETIC[operator], left, right)


def plain(value: Any) -> Any:
    """Equal where SQL says so: NaN is NaN."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def rank(value: Any) -> Any:
    """To compare by: NaN is above all numbers."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return (0, value)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: rank(a) == rank(b),
    "<>": lambda a, b: rank(a) != rank(b),
    "<": lambda a, b: rank(a) < rank(b),
    "<=": lambda a, b: rank(a) <= rank(b),
    ">": lambda a, b: rank(a) > rank(b),
    ">=": lambda a, b: rank(a) >= rank(b),
}


def compare(operator: str, left: Expr, right: Expr) -> Expr:
    return strict(f"{left} {operator} {right}", "bool", COMPARISONS[operator], left, right)


def between(what: Expr, low: Expr, high: Expr) -> Expr:
    return strict(
        f"{what} BETWEEN {low} AND {high}", "bool", lambda v, a, b: rank(a) <= rank(v) <= rank(b), what, low, high
    )


def among(what: Expr, values: list[Expr], negated: bool) -> Expr:
    """Values are constants, none of them NULL."""
    text = f"{what} {'NOT ' if negated else ''}IN ({', '.join(map(str, values))})"
    return strict(text, "bool", lambda v: (v in [w.of({}) for w in values]) != negated, what)


def is_null(what: Expr, negated: bool) -> Expr:
    text = f"{what} IS {'NOT ' if negated else ''}NULL"
    return Expr(text, "bool", lambda env: (what.of(env) is None) != negated)


def negation(what: Expr) -> Expr:
    return strict(f"(NOT ({what}))", "bool", lambda v: not v, what)


def connective(word: str, left: Expr, right: Expr) -> Expr:
    decided = word == "OR"

    def value(env: Env) -> bool | None:
        values = (left.of(env), right.of(env))
        if decided in values:
            return decided
        return None if None in values else not decided

    return Expr(f"({left} {word} {right})", "bool", value)


def coalesce(what: Expr, other: Expr) -> Expr:
    def value(env: Env) -> Any:
        found = what.of(env)
        return other.of(env) if found is None else found

    return Expr(f"coalesce({what}, {other})", what.kind, value)


def case(condition: Expr, then: Expr, other: Expr) -> Expr:
    return Expr(
        f"(CASE WHEN {condition} THEN {then} ELSE {other} END)",
        then.kind,
        lambda env: then.of(env) if condition.of(env) is True else other.of(env),
    )


def call(name: str, kind: str, function: Callable[..., Any], *parts: Expr) -> Expr:
    return strict(f"{name}({', '.join(map(str, parts))})", kind, function, *parts)


# --- queries -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A stream or a table in FROM."""

    name: str
    alias: str
    table: bool = False


@dataclass(frozen=True)
class Exists:
    """[NOT] EXISTS over a stream: equalities with the outer query, and conditions on the stream alone."""

    source: Source
    keys: tuple[tuple[Expr, Expr], ...]
    where: tuple[Expr, ...]
    negated: bool


@dataclass(frozen=True)
class Aggregate:
    """count, sum, avg, min, max, median or quantile; without an argument count(*)."""

    name: str
    argument: Expr | None
    distinct: bool = False
    share: float | None = None

    @property
    def text(self) -> str:
        if self.argument is None:
            return "count(*)"
        share = "" if self.share is None else f", {self.share}"
        return f"{self.name}({'DISTINCT ' if self.distinct else ''}{self.argument}{share})"

    @property
    def kind(self) -> str:
        if self.name == "count":
            return "int"
        assert self.argument is not None
        return self.argument.kind if self.name in ("sum", "min", "max") else "float"

    def over(self, envs: list[Env]) -> Any:
        if self.argument is None:
            return len(envs)
        values = [v for env in envs if (v := self.argument.of(env)) is not None]
        if self.name == "count":
            return len(set(map(plain, values))) if self.distinct else len(values)
        if not values:
            return None
        if self.name == "sum":
            return sum(values)
        if self.name == "avg":
            return sum(values) / len(values)
        values.sort(key=rank)
        if self.name == "min":
            return values[0]
        if self.name == "max":
            return values[-1]
        place = (0.5 if self.share is None else self.share) * (len(values) - 1)
        low = int(place)
        if place == low:
            return float(values[low])
        return float(values[low] + (values[low + 1] - values[low]) * (place - low))


@dataclass(frozen=True)
class Select:
    """One SELECT. `group` is None without aggregates, and empty with aggregates but no GROUP BY.

    `where` has all conditions, those of the join too; with `on` the first of them is written after ON.
    """

    sources: tuple[Source, ...]
    items: tuple[Expr, ...]
    where: tuple[Expr, ...] = ()
    exists: Exists | None = None
    distinct: bool = False
    group: tuple[Expr, ...] | None = None
    aggregates: tuple[Aggregate, ...] = ()
    having: Expr | None = None
    window: int | None = None
    on: bool = False

    @property
    def streams(self) -> list[Source]:
        inner = [] if self.exists is None else [self.exists.source]
        return [s for s in self.sources if not s.table] + inner


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT."""

    word: str
    all: bool
    left: "Query"
    right: "Query"


Query: TypeAlias = Select | SetOperation
From: TypeAlias = Callable[[Source, int | None], str]
"""How a source is written, given the window of its SELECT."""


def selects(query: Query) -> Iterator[Select]:
    if isinstance(query, Select):
        yield query
    else:
        yield from selects(query.left)
        yield from selects(query.right)


def streams(query: Query) -> set[str]:
    return {source.name for select in selects(query) for source in select.streams}


def tables(query: Query) -> set[str]:
    return {source.name for select in selects(query) for source in select.sources if source.table}


def growing(query: Query) -> bool:
    """No part can take back what another has given: no negation, no aggregates."""
    if isinstance(query, SetOperation):
        return query.word != "EXCEPT" and growing(query.left) and growing(query.right)
    return query.group is None and (query.exists is None or not query.exists.negated)


def ours(query: Query) -> str:
    return text(query, lambda source, _: f"{source.name} {source.alias}", windows=True)


def text(query: Query, written: From, *, windows: bool = False) -> str:
    if isinstance(query, SetOperation):
        left, right = (text(side, written, windows=windows) for side in (query.left, query.right))
        if isinstance(query.left, SetOperation) and _binding(query.left) < _binding(query):
            left = f"({left})"
        if isinstance(query.right, SetOperation) and _binding(query.right) <= _binding(query):
            right = f"({right})"
        return f"{left} {query.word}{' ALL' if query.all else ''} {right}"
    return _select_text(query, written, windows)


def _binding(query: SetOperation) -> int:
    return 2 if query.word == "INTERSECT" else 1


def _select_text(query: Select, written: From, windows: bool) -> str:
    tables = [written(source, query.window) for source in query.sources]
    where = [str(condition) for condition in query.where]
    parts = [f"SELECT {'DISTINCT ' if query.distinct else ''}{', '.join(map(str, query.items))} FROM"]
    if query.on:
        parts.append(f"{tables[0]} JOIN {tables[1]} ON {where.pop(0)}")
    else:
        parts.append(", ".join(tables))
    if query.exists is not None:
        inner = query.exists
        met = [f"{right} = {left}" for left, right in inner.keys] + [str(c) for c in inner.where]
        where.append(
            f"{'NOT ' if inner.negated else ''}EXISTS"
            f" (SELECT 1 FROM {written(inner.source, query.window)} WHERE {' AND '.join(met)})"
        )
    if where:
        parts.append("WHERE " + " AND ".join(where))
    if query.group:
        parts.append("GROUP BY " + ", ".join(map(str, query.group)))
    if query.having is not None:
        parts.append(f"HAVING {query.having}")
    if windows and query.window is not None:
        parts.append(f"WINDOW {query.window} MICROSECONDS")
    return " ".join(parts)


# --- what has happened -------------------------------------------------------------------------------------------


@dataclass
class TableLog:
    """A reference table: its contents after each change, and how many tuples of each stream had arrived by then."""

    key: str
    retroactive: bool
    contents: list[dict[Any, Row]] = field(default_factory=lambda: [{}])
    positions: list[dict[str, int]] = field(default_factory=lambda: [{}])

    def change(self, after: dict[Any, Row], arrived: dict[str, int]) -> None:
        self.contents.append(after)
        self.positions.append(dict(arrived))

    def seen_by(self, stream: str, seq: int) -> int:
        """The number of the last change before that tuple."""
        return max(c for c, at in enumerate(self.positions) if at.get(stream, 0) <= seq)

    def seen(self, stream: str, seq: int) -> dict[Any, Row]:
        """The contents that a tuple is joined with."""
        return self.contents[-1 if self.retroactive else self.seen_by(stream, seq)]


@dataclass
class History:
    """All tuples in order of arrival, with their time `ts`, the clocks of the streams, and the tables."""

    streams: dict[str, list[Row]]
    clocks: dict[str, int]
    tables: dict[str, TableLog] = field(default_factory=dict)

    def arrive(self, stream: str, rows: list[Row]) -> None:
        self.streams[stream] += rows
        for row in rows:
            self.advance(stream, row["ts"])

    def advance(self, stream: str, time: int) -> None:
        self.clocks[stream] = max(self.clocks.get(stream, LONG_AGO), time)

    def now(self, query: Query) -> int:
        """The time of a query: that of whichever of its streams is ahead."""
        return max((self.clocks[s] for s in streams(query) if s in self.clocks), default=LONG_AGO)

    def arrived(self) -> dict[str, int]:
        return {name: len(rows) for name, rows in self.streams.items()}


# --- the meaning -------------------------------------------------------------------------------------------------


Admitted: TypeAlias = Callable[[str, int], int]
"""The time of the query when it came to know a tuple of a stream; one that had ended by then it does not know."""


def view(query: Query, history: History, now: int, admitted: Admitted = lambda stream, seq: LONG_AGO) -> Bag:
    """The rows of the view at time `now`, each as often as it is there."""
    if isinstance(query, Select):
        return _selected(query, history, now, admitted)
    left, right = (view(side, history, now, admitted) for side in (query.left, query.right))
    if not query.all:
        left, right = Counter(dict.fromkeys(left, 1)), Counter(dict.fromkeys(right, 1))
    if query.word == "UNION":
        both = left + right
        return both if query.all else Counter(dict.fromkeys(both, 1))
    return left & right if query.word == "INTERSECT" else left - right


def _live(name: str, window: int | None, history: History, now: int, admitted: Admitted) -> list[tuple[int, Row]]:
    found = list(enumerate(history.streams[name]))
    if window is None:
        return found
    return [(seq, row) for seq, row in found if row["ts"] <= now and row["ts"] + window > max(now, admitted(name, seq))]


def _selected(query: Select, history: History, now: int, admitted: Admitted) -> Bag:
    envs = [env for env in _joined(query, history, now, admitted) if all(c.of(env) is True for c in query.where)]
    if query.exists is not None:
        envs = _existing(query, query.exists, envs, history, now, admitted)
    if query.group is not None:
        envs = _grouped(query, query.group, envs)
    rows = (tuple(plain(item.of(env)) for item in query.items) for env in envs)
    return Counter(set(rows)) if query.distinct else Counter(rows)


def _joined(query: Select, history: History, now: int, admitted: Admitted) -> Iterator[Env]:
    """Every combination of what FROM has; of a table the rows that each tuple may see."""
    outer = [s for s in query.sources if not s.table]
    parts = [_live(s.name, query.window, history, now, admitted) for s in outer]
    looked_up = [s for s in query.sources if s.table]
    for combination in product(*parts):
        env: Env = {s.alias: row for s, (_, row) in zip(outer, combination, strict=True)}
        if not looked_up:
            yield env
            continue
        (table,), ((seq, _),) = looked_up, combination
        for row in history.tables[table.name].seen(outer[0].name, seq).values():
            yield {**env, table.alias: row}


def _existing(
    query: Select, exists: Exists, envs: list[Env], history: History, now: int, admitted: Admitted
) -> list[Env]:
    inner = [{exists.source.alias: row} for _, row in _live(exists.source.name, query.window, history, now, admitted)]
    inner = [env for env in inner if all(c.of(env) is True for c in exists.where)]
    keys = {tuple(plain(right.of(env)) for _, right in exists.keys) for env in inner}
    kept = []
    for env in envs:
        key = tuple(plain(left.of(env)) for left, _ in exists.keys)
        found = None not in key and key in keys
        if found != exists.negated:
            kept.append(env)
    return kept


def _grouped(query: Select, keys: tuple[Expr, ...], envs: list[Env]) -> list[Env]:
    groups: dict[tuple[Any, ...], list[Env]] = {} if keys else {(): []}
    for env in envs:
        groups.setdefault(tuple(plain(key.of(env)) for key in keys), []).append(env)
    results: list[Env] = []
    for values, members in groups.items():
        result: dict[str, Any] = {f"k{i}": v for i, v in enumerate(values)}
        result |= {f"a{i}": a.over(members) for i, a in enumerate(query.aggregates)}
        if query.having is None or query.having.of({"": result}) is True:
            results.append({"": result})
    return results


def rounded(bag: Bag) -> Bag:
    """Averages may differ in their last digits."""
    found: Bag = Counter()
    for row, count in bag.items():
        found[tuple(plain(round(v, 9) if isinstance(v, float) and abs(v) < 1e300 else v) for v in row)] += count
    return found
