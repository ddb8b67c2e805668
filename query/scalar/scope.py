"""Scopes: the columns that an expression may reference."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sqlglot import exp

from promising.errors import Ambiguous, NoSuchName, StatementError
from promising.query.scalar.positions import Place
from promising.query.scalar.types import Kind


class Input(NamedTuple):
    """Column `name` of the `source`-th stream in FROM. A negative source is a column computed by the query."""

    source: int
    name: str
    kind: Kind


class Scope(Protocol):
    """Resolves the names in one statement, whose text `sql` is for errors."""

    @property
    def sql(self) -> str: ...

    def resolve(self, node: exp.Column) -> Input:
        """The column of a name. Raises NoSuchName or Ambiguous with its position."""
        ...

    def replace(self, node: exp.Expression) -> Input | None:
        """Called first for every node: a column that already holds its value, or None to descend into the node."""
        ...


def suggest(name: str, known: Iterable[str], near_enough: float = 0.6) -> str:
    """A message suffix with the nearest known name, case-insensitive; empty if none is near."""
    spelled = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=near_enough)
    return f"; did you mean {spelled[near[0]]}?" if near else ""


class StreamScope:
    """The columns of the streams in FROM, as `alias.column`, or by bare name if unique.

    Names are case-insensitive, even if quoted. A stream with an alias is known by the alias only, as in SQL.
    """

    def __init__(self, sql: str, streams: Sequence[tuple[str, str, Mapping[str, Kind]]]) -> None:
        """`streams` are (alias, stream name, column types), in the order of FROM."""
        self._sql = sql
        self._streams = [(alias, name, columns) for alias, name, columns in streams]
        self._names = [
            (source, alias.lower(), {column.lower(): column for column in columns})
            for source, (alias, _, columns) in enumerate(streams)
        ]
        self._known: dict[tuple[str, str], Input] = {}  # those asked for

    @property
    def sql(self) -> str:
        return self._sql

    def resolve(self, node: exp.Column) -> Input:
        table, named = node.args.get("table"), node.args["this"]  # read directly: this is called for every column
        key = "" if table is None else table.args["this"].lower(), named.args["this"].lower()
        known = self._known.get(key)
        if known is None or node.args.get("db"):
            known = self._known[key] = self._find(node, *key)
        return known

    def _find(self, node: exp.Column, table: str, name: str) -> Input:
        if node.args.get("db"):
            spelled = node.sql(dialect="duckdb")
            raise self._error(node, NoSuchName, f"no column {spelled}: a column is alias.name or name")
        asked = [names for names in self._names if not table or names[1] == table]
        if not asked:
            hint = suggest(node.table, [alias for alias, _, _ in self._streams])
            for alias, stream, _ in self._streams:
                if stream.lower() == table:
                    hint = f"; it goes by {alias} here"
            raise self._error(node, NoSuchName, f"no stream {node.table!r} in this query{hint}")
        found = [(source, names[name]) for source, _, names in asked if name in names]
        if len(found) > 1:
            choices = " or ".join(f"{self._streams[source][0]}.{column}" for source, column in found)
            raise self._error(node, Ambiguous, f"column {node.name!r} is in more than one stream: write {choices}")
        if not found:
            streams = [self._streams[source] for source, _, _ in asked]
            where = ", ".join(stream if stream == alias else f"{stream} {alias}" for alias, stream, _ in streams)
            hint = suggest(node.name, [column for _, _, columns in streams for column in columns])
            raise self._error(node, NoSuchName, f"no column {node.name!r} in {where}{hint}")
        ((source, column),) = found
        return Input(source, column, self._streams[source][2][column])

    def _error(self, node: exp.Column, kind: type[StatementError], message: str) -> StatementError:
        return Place.of(node, self._sql).error(kind, message)

    def replace(self, node: exp.Expression) -> Input | None:
        return None
