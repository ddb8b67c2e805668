"""Scopes: the columns that an expression may reference."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from promising.errors import Ambiguous, NoSuchName
from promising.query.scalar.positions import Place
from promising.query.scalar.types import Kind


@dataclass(frozen=True)
class Input:
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
        self._streams = [
            (alias, name, {column.lower(): Input(source, column, kind) for column, kind in columns.items()})
            for source, (alias, name, columns) in enumerate(streams)
        ]
        self._known: dict[tuple[str, str], Input] = {}  # unambiguous names
        for alias, _, columns in self._streams:
            for column, found in columns.items():
                self._known[alias.lower(), column] = found
                if sum(column in other for _, _, other in self._streams) == 1:
                    self._known["", column] = found

    @property
    def sql(self) -> str:
        return self._sql

    def resolve(self, node: exp.Column) -> Input:
        known = self._known.get((node.table.lower(), node.name.lower()))
        if known is not None and not node.args.get("db"):
            return known
        place = Place.of(node, self._sql)
        if node.args.get("db"):
            raise place.error(NoSuchName, f"no column {node.sql(dialect='duckdb')}: a column is alias.name or name")
        asked = self._streams
        if node.table:
            asked = [stream for stream in self._streams if stream[0].lower() == node.table.lower()]
            if not asked:
                hint = suggest(node.table, [alias for alias, _, _ in self._streams])
                for alias, name, _ in self._streams:
                    if name.lower() == node.table.lower():
                        hint = f"; it goes by {alias} here"
                raise place.error(NoSuchName, f"no stream {node.table!r} in this query{hint}")
        found = [(alias, columns[node.name.lower()]) for alias, _, columns in asked if node.name.lower() in columns]
        if len(found) > 1:
            choices = " or ".join(f"{alias}.{column.name}" for alias, column in found)
            raise place.error(Ambiguous, f"column {node.name!r} is in more than one stream: write {choices}")
        if not found:
            where = ", ".join(name if name == alias else f"{name} {alias}" for alias, name, _ in asked)
            hint = suggest(node.name, [column.name for _, _, columns in asked for column in columns.values()])
            raise place.error(NoSuchName, f"no column {node.name!r} in {where}{hint}")
        return found[0][1]

    def replace(self, node: exp.Expression) -> Input | None:
        return None
