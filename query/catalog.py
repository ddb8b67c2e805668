"""The catalog: streams, summaries, reference tables and continuous queries in one namespace."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

from sqlglot import exp

from promising.errors import DataDamaged, DuplicateName, NoSuchName, Unsupported
from promising.index import Stream, SummaryIndex
from promising.index.table import Table
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest


@dataclass(frozen=True)
class SummaryEntry:
    stream: str
    index: SummaryIndex


@dataclass(frozen=True)
class ContinuousQuery:
    """A registered query: its canonical text, and the streams, summaries and tables it reads."""

    name: str
    statement: str
    reads: frozenset[str]
    number: str = ""  # distinguishes it from earlier queries of the same name


def _no_view(name: str) -> Stream:
    raise Unsupported(f"{name} is a continuous query, and none runs here")


class Catalog:
    """Names are case-insensitive, retain their original spelling, and are unique across all kinds of objects."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.streams: dict[str, Stream] = {}
        self.summaries: dict[str, SummaryEntry] = {}
        self.tables: dict[str, Table] = {}
        self.queries: dict[str, ContinuousQuery] = {}
        self.view: Callable[[str], Stream] = _no_view
        """The current rows of a continuous query; set by the session that runs them."""

    def fill(
        self,
        streams: Mapping[str, Stream],
        queries: Mapping[str, Mapping[str, Any]],
        tables: Mapping[str, Table] | None = None,
    ) -> None:
        """Load the definitions of a store."""
        self.tables |= {name.lower(): table for name, table in (tables or {}).items()}
        for name, stream in streams.items():
            self.streams[name.lower()] = stream
            for summary, index in stream.summaries.items():
                self.summaries[summary.lower()] = SummaryEntry(name, index)
        for name, query in queries.items():
            reads, number = frozenset(query["reads"]), query.get("number", "")
            self.queries[name.lower()] = ContinuousQuery(name, query["statement"], reads, number)

    def what(self, name: str) -> str | None:
        """The kind of object that has this name."""
        key = name.lower()
        every: tuple[tuple[str, Mapping[str, object]], ...] = (
            ("stream", self.streams),
            ("summary", self.summaries),
            ("table", self.tables),
            ("query", self.queries),
        )
        return next((kind for kind, known in every if key in known), None)

    def claim(self, name: str, kind: str) -> str:
        """The key of a new name; raises if the name is taken."""
        found = self.what(name)
        if found is not None:
            hint = "drop it first, or write IF NOT EXISTS" if found == kind else "drop it first, or choose another name"
            raise DuplicateName(f"{name!r} is a {found} already; {hint}")
        return name.lower()

    def stream(self, name: exp.Identifier, sql: str) -> Stream:
        with self.lock:
            found = self.streams.get(name.name.lower())
            if found is None:
                raise self.missing("stream", name, sql, (s.name for s in self.streams.values()))
            return found

    def summary(self, name: exp.Identifier, sql: str) -> SummaryEntry:
        with self.lock:
            found = self.summaries.get(name.name.lower())
            if found is None:
                raise self.missing("summary", name, sql, (s.index.name for s in self.summaries.values()))
            return found

    def table(self, name: exp.Identifier, sql: str) -> Table:
        with self.lock:
            found = self.tables.get(name.name.lower())
            if found is None:
                raise self.missing("table", name, sql, (t.name for t in self.tables.values()))
            if found.damage is not None:
                raise DataDamaged(found.damage)
            return found

    def positions(self) -> dict[str, int]:
        """Arrived tuples per stream: the position of a table change among them."""
        with self.lock:
            return {stream.name: stream.arrived for stream in self.streams.values()}

    def missing(self, kind: str, name: exp.Identifier, sql: str, known: Iterable[str]) -> NoSuchName:
        """The error for an unknown name, with the nearest known one."""
        known = list(known)
        hint = suggest(name.name, known)
        other = self.what(name.name)
        if other not in (None, kind):
            hint = f"; it is a {other}"
        elif not hint:
            hint = f"; there are {', '.join(sorted(known))}" if known else "; there are none yet"
        return NoSuchName(f"no {kind} {name.name!r}{hint}", sql, offset_of(name))

    def readers(self, name: str) -> list[str]:
        return sorted(q.name for q in self.queries.values() if name.lower() in q.reads)
