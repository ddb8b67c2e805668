"""What exists: streams, summaries and continuous queries, under one set of names."""

from collections.abc import Iterable
from dataclasses import dataclass
from threading import RLock

from sqlglot import exp

from index import Stream, SummaryIndex
from query.scalar.places import offset_of
from query.scalar.scope import suggest
from summaries.errors import DuplicateName, NoSuchName


@dataclass(frozen=True)
class SummaryEntry:
    stream: str
    index: SummaryIndex


@dataclass(frozen=True)
class ContinuousQuery:
    """A registered query: its text in canonical form, and the streams and summaries it reads."""

    name: str
    statement: str
    reads: frozenset[str]


class Catalog:
    """Names are case-insensitive and keep the spelling they were given. A name stands for one thing only."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.streams: dict[str, Stream] = {}
        self.summaries: dict[str, SummaryEntry] = {}
        self.queries: dict[str, ContinuousQuery] = {}

    def what(self, name: str) -> str | None:
        """Which kind of thing has that name."""
        key = name.lower()
        for kind, known in (("stream", self.streams), ("summary", self.summaries), ("query", self.queries)):
            if key in known:
                return kind
        return None

    def claim(self, name: str, kind: str) -> str:
        """The key for a new name."""
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

    def missing(self, kind: str, name: exp.Identifier, sql: str, known: Iterable[str]) -> NoSuchName:
        """The error for a name that is not there, with the nearest one that is."""
        known = list(known)
        hint = suggest(name.name, known)
        other = self.what(name.name)
        if other not in (None, kind):
            hint = f"; it is a {other}"
        elif not hint:
            hint = f"; there are {', '.join(sorted(known))}" if known else "; there are none yet"
        return NoSuchName(f"no {kind} {name.name!r}{hint}", sql, offset_of(name))

    def readers(self, name: str) -> list[str]:
        """Continuous queries that read the stream or summary."""
        return sorted(q.name for q in self.queries.values() if name.lower() in q.reads)
