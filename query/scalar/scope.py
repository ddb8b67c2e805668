"""Which columns an expression may name."""

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
    """Column `name` of the `source`-th stream in FROM. Negative sources are columns made by the query itself."""

    source: int
    name: str
    kind: Kind


class Scope(Protocol):
    """What names mean in one statement. `sql` is its text, for errors."""

    @property
    def sql(self) -> str: ...

    def resolve(self, node: exp.Column) -> Input:
        """The column a name stands for. Raises NoSuchName or Ambiguous at its place."""
        ...

    def replace(self, node: exp.Expression) -> Input | None:
        """Asked first for every node: a column that already holds its value, or None to go on into the node."""
        ...


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message: the known name nearest to `name`, or nothing. Case does not count."""
    spelled = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]}?" if near else ""


class StreamScope:
    """The columns of the streams in FROM, under `alias.column` or, where only one stream has it, the bare name.

    Names are case-insensitive, quoted or not. A stream that was given an alias is known by it alone, as in SQL.
    """

    def __init__(self, sql: str, streams: Sequence[tuple[str, str, Mapping[str, Kind]]]) -> None:
        """`streams` are (alias, name of the stream, kinds of its columns), in the order of FROM."""
        self._sql = sql
        self._streams = [
            (alias, name, {column.lower(): Input(source, column, kind) for column, kind in columns.items()})
            for source, (alias, name, columns) in enumerate(streams)
        ]
        self._known: dict[tuple[str, str], Input] = {}  # names that can mean one thing only
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
