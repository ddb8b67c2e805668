"""All standing queries of a session: the ticks that update them, and their subscribers."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import pyarrow as pa

from promising.errors import NoSuchName, PromisingError
from promising.index import Stream
from promising.index.instants import BEGINNING
from promising.index.table import Table
from promising.query.standing import plan
from promising.query.standing.aggregate_view import view_of
from promising.query.standing.cpu_shares import share_out
from promising.query.standing.deltas import Mode
from promising.query.standing.feed_tokens import read_token, token_head, token_progress
from promising.query.standing.stream_source import Alike, StreamSource
from promising.query.standing.subscription import Delta
from promising.query.standing.views import Planned, Seen, View, may_wait
from promising.summaries.kernels.clock import work_ns

Key: TypeAlias = tuple[str, int | None, str | None]  # text and budget: queries with equal ones share a view

LEAST_SHARE = 0.1  # fraction of a tick reserved for queries that may defer work, however long the others take
CATCH_UP = 100_000_000  # nanoseconds of CPU per tick to start queries of a store
SILENCE = 1_000_000  # microseconds without arrivals after which a stream's time follows the wall clock


@dataclass(frozen=True)
class QueryStatus:
    name: str
    statement: str
    watermark: int
    """The view is current as of this time."""
    lag: int
    """Microseconds of event time that have arrived and are not yet in the view."""
    size: int
    """Results in the view."""
    came: int
    """Results inserted so far."""
    went: int
    """Of these, retracted before their expiry."""
    late: int
    """Tuples that had expired before they arrived."""
    shed: float
    """Expected number of results dropped for lack of CPU."""
    cpu_seconds: float
    budget: float | None
    """CPU seconds per second."""
    label: str
    store: str
    mode: str
    bytes: int
    subscribers: int
    problem: str | None
    """The error that stopped it, if any."""


@dataclass(frozen=True)
class Stored:
    """A query of a store that has not started yet: it needs a scan of its windows, and nobody has asked for it."""

    name: str
    statement: str
    number: str
    reads: frozenset[str]
    """Lower-case names of streams and tables."""
    start: Callable[[], None]
    """Creates it, or registers what it is broken by."""


class Feed:
    """One subscriber of one query. No changes are queued for it: they are looked up when it polls."""

    def __init__(self, engine: "Engine", name: str, seen: Seen | None, same: bool) -> None:
        self._engine = engine
        self.name = name
        self.key = name.lower()
        self.seen = seen  # last reported position; None: none, or of another view
        self.same = same  # whether that was in this process, so ticks are comparable
        self.view = engine.view(name)
        self.number = self.view.readers[0].number
        self.alike: Alike | None = None  # group of selections it is read with, from the first change on
        self.schema = self.view.schema
        self.keyed = self.view.keyed
        self.endless = self.view.endless
        self.key_width = self.view.width

    def take(self) -> Delta | None:
        """The changes since the last call; None if there are none."""
        return self._engine.take((self,)).get(self)

    def follow(self, view: View) -> None:
        """Switch to the view of a query that was recreated, or has a new budget."""
        if _shape(view) != _shape(self.view):
            raise NoSuchName(
                f"continuous query {self.name!r} was dropped, and another is called so now; subscribe again"
            )
        self.view, self.number, self.alike = view, view.readers[0].number, None
        self.seen, self.same = None, True

    def close(self) -> None:
        self._engine.leave(self)


class Engine:
    """All standing queries. Those of equal text share a view. Thread-safe."""

    def __init__(self, mode: Mode = Mode.PIGGYBACK, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self.mode = mode
        self.lock = threading.RLock()
        self.number = 0  # of the last tick
        self.driven = False  # whether a service makes the ticks
        self._elapsed = elapsed
        self._last: float | None = None
        self._epoch = secrets.token_hex(8)
        self._sources: dict[str, StreamSource] = {}
        self._views: dict[Key, View] = {}
        self._planned: dict[Key, Planned] = {}  # views that need work in every tick
        self._queries: dict[str, View | PromisingError] = {}
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._heads: dict[str, str] = {}  # the prefix of each token of a query
        self._feeds: set[Feed] = set()
        self._stored: dict[str, Stored] = {}
        self._starting = threading.RLock()  # acquired before `lock`

    # --- queries of a store --------------------------------------------------------------------------------------

    def stored(self, queries: Iterable[Stored], streams: Iterable[Stream], starting: threading.RLock) -> None:
        """Register queries that start when they are asked for, or one by one with the ticks.

        A view depends on the content of its windows only, so it does not matter when it starts. streams: that they
        read, whose arrivals count from now. starting: held while a query starts, and when queries are changed.
        """
        with self.lock:
            self._starting = starting
            self._stored |= {query.name.lower(): query for query in queries}
            for stream in streams:
                self._sources.setdefault(stream.name.lower(), StreamSource(stream, self.number))

    def start(self, name: str) -> None:
        """Start a query of the store unless it has."""
        if name.lower() in self._stored:
            with self._starting:
                self._start(name.lower())

    def _start(self, key: str) -> None:
        found = self._stored.get(key)
        if found is not None:
            found.start()
            self._stored.pop(key, None)

    def _catch_up(self) -> None:
        """Start queries for a slice of CPU time, unless queries are being changed."""
        until = work_ns() + CATCH_UP
        while self._stored and self._starting.acquire(blocking=False):
            try:
                for key in list(islice(self._stored, 1)):
                    self._start(key)
            finally:
                self._starting.release()
            if work_ns() >= until:
                break

    def waits(self, name: str) -> bool:
        """Whether a query that reads this stream or table has not started yet."""
        return any(name.lower() in query.reads for query in list(self._stored.values()))

    # --- queries -------------------------------------------------------------------------------------------------

    def create(self, name: str, standing: plan.Standing, number: str) -> None:
        """Start a query with the current content of its windows. number: identifies this creation, across restarts."""
        with self.lock:
            view = view_of(standing, self.mode)
            # A query without WINDOW begins at its creation, so its view is not shared.
            key = standing.statement, standing.budget, name.lower() if view.endless else None
            known = self._views.get(key)
            if known is not None and known.failed is None:
                view = known
            else:
                try:
                    view.open(self._source)
                    view.fill(self.number)
                except BaseException:
                    view.close()
                    self._let_go()
                    raise
                self._views[key] = view
                if isinstance(view, Planned):
                    self._planned[key] = view
            view.names.add(name.lower())
            self._queries[name.lower()] = view
            self._ids[name.lower()], self._names[name.lower()] = number, name
            self._heads[name.lower()] = token_head(self._epoch, number)

    def broken(self, name: str, statement: str, problem: PromisingError) -> None:
        """Register a stored query that can no longer run."""
        with self.lock:
            self._queries[name.lower()] = problem
            self._ids[name.lower()], self._names[name.lower()] = statement, name

    def drop(self, name: str) -> None:
        """Drop a query; its subscribers are notified at their next poll."""
        with self.lock:
            self._stored.pop(name.lower(), None)
            view = self._queries.pop(name.lower(), None)
            self._ids.pop(name.lower(), None)
            self._names.pop(name.lower(), None)
            self._heads.pop(name.lower(), None)
            if isinstance(view, View):
                view.names.discard(name.lower())
                if not view.names:
                    key = view.standing.statement, view.standing.budget, name.lower() if view.endless else None
                    if self._views.get(key) is view:  # not one created after this one failed
                        del self._views[key]
                        self._planned.pop(key, None)
                    view.close()
            self._let_go()

    def _source(self, window: plan.Window) -> StreamSource:
        key = window.stream.name.lower()
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = StreamSource(window.stream, self.number)
        return source

    def _let_go(self) -> None:
        for key in [key for key, source in self._sources.items() if not source.used and not self.waits(key)]:
            del self._sources[key]

    def view(self, name: str) -> View:
        self.start(name)
        with self.lock:
            found = self._queries.get(name.lower())
            if found is None:
                raise NoSuchName(f"there is no continuous query {name!r}; CREATE CONTINUOUS QUERY makes one")
            if not isinstance(found, View):
                raise found
            return found

    def __len__(self) -> int:
        return len(self._queries) + len(self._stored)

    def oldest(self, stream: str) -> int | None:
        """The first arrival of a stream that a view may still show; None if no view reads it."""
        with self.lock:
            source = self._sources.get(stream.lower())
            return None if source is None else source.rows.first

    def followed(self, table: Table) -> int | None:
        """The last change of a table that every view has applied; None if no view reads it."""
        with self.lock:
            seen = [change for view in self._views.values() for change in view.followed(table)]
            return min(seen, default=None)

    # --- ticks ---------------------------------------------------------------------------------------------------

    def tick(self, *, idle: int | None = None, silence: int = SILENCE, capacity: float | None = None) -> int:
        """Apply new arrivals; returns the number of the tick.

        idle: the wall clock in microseconds; it advances the time of streams that were silent for `silence`.
        capacity: CPU seconds for this tick. Queries with a budget or a preference defer work that does not fit.
        """
        with self.lock:
            began = work_ns()
            self.number += 1
            for source in self._sources.values():
                source.pull(self.number, idle, silence)
            elapsed = self._since_last()
            working = [view for view in self._planned.values() if view.failed is None]
            for view in working:
                if not may_wait(view.standing):
                    view.step(self.number)
            patient = [view for view in working if may_wait(view.standing)]
            left = None
            if capacity is not None:
                left = int(max(capacity * 1e9 * LEAST_SHARE, capacity * 1e9 - (work_ns() - began)))
            share_out(patient, left, elapsed, self.number)
            for source in self._sources.values():
                source.settle(forget=self.mode is not Mode.ITA)  # in ITA, views may still show expired tuples
            number = self.number
        self._catch_up()
        return number

    def _since_last(self) -> float:
        now = self._elapsed()
        last, self._last = self._last, now
        return 0.0 if last is None else now - last

    # --- subscribers ---------------------------------------------------------------------------------------------

    def subscribe(self, name: str, token: str | None = None) -> Feed:
        """Subscribe to a query. With a token, resume there: incrementally if possible, else with a reset."""
        self.start(name)
        with self.lock:
            view = self.view(name)
            seen, same = None, True
            if token is not None:
                seen, same = self._read(name, token, view)
            feed = Feed(self, name, seen, same)
            self._feeds.add(feed)
            return feed

    def leave(self, feed: Feed) -> None:
        with self.lock:
            self._feeds.discard(feed)

    def take(self, feeds: Iterable[Feed]) -> dict[Feed, Delta]:
        """The changes of each feed since its last call, if any. An error is raised, and then no feed advances."""
        with self.lock:
            made: dict[Feed, Delta] = {}
            together: dict[tuple[Alike, int], list[Feed]] = {}
            told: list[tuple[Seen, list[Feed]]] = []
            for feed in feeds:
                view = self._queries.get(feed.key)
                if view is not feed.view:
                    feed.follow(self.view(feed.name))
                if feed.alike is not None and feed.seen is not None:
                    together.setdefault((feed.alike, feed.seen.tick), []).append(feed)
                else:
                    self._changes(feed, made, told)
            for (alike, tick), several in together.items():
                if len(several) == 1:
                    self._changes(several[0], made, told)
                    continue
                if alike.source.problem is not None:
                    raise alike.source.problem
                if alike.changed > tick:
                    self._changes_together(alike, several, made, told)
            for seen, several in told:
                for feed in several:
                    feed.seen, feed.same, feed.alike = seen, True, feed.alike or feed.view.alike
            return made

    def _changes(self, feed: Feed, made: dict[Feed, Delta], told: list[tuple[Seen, list[Feed]]]) -> None:
        view = feed.view
        if view.failed is not None:
            raise view.failed
        for source in view.sources:
            if source.problem is not None:
                raise source.problem
        if feed.seen is not None and feed.same and view.changed <= feed.seen.tick:
            return
        changes = view.since(feed.seen, same=feed.same)
        rows = view.rows(changes.ids) if len(changes.ids) else view.schema.empty_table()
        seen = Seen(view.tick, view.now, view.positions)
        told.append((seen, [feed]))
        made[feed] = Delta(
            view.tick,
            view.watermark,
            changes.reset,
            rows,
            changes.ids,
            changes.exp,
            changes.retractions,
            self._heads[feed.key] + token_progress(seen),
            view.shed,
            view.lag,
        )

    def _changes_together(
        self, alike: Alike, feeds: list[Feed], made: dict[Feed, Delta], told: list[tuple[Seen, list[Feed]]]
    ) -> None:
        """Changes of similar selections: one lookup for all, of which each feed gets a slice."""
        view, before = feeds[0].view, feeds[0].seen
        assert before is not None
        (first,) = before.positions.values()
        news = alike.since([feed.number for feed in feeds], first)
        seen = Seen(view.tick, view.now, view.positions)
        told.append((seen, feeds))
        heads, progress = self._heads, token_progress(seen)
        tick, watermark, shed, lag = view.tick, view.watermark, view.shed, view.lag
        missed, rows, ids, exp = news.missed, news.rows, news.ids[:, None], news.exp
        none, begin = ids[:0], 0
        for feed, end in zip(feeds, news.ends, strict=True):
            made[feed] = Delta(
                tick,
                watermark,
                missed,
                rows.slice(begin, end - begin),
                ids[begin:end],
                exp[begin:end],
                none,
                heads[feed.key] + progress,
                shed,
                lag,
            )
            begin = end

    def _read(self, name: str, token: str, view: View) -> tuple[Seen | None, bool]:
        """A token's position, and whether it is of this process; None if the position cannot be used."""
        epoch, number, seen = read_token(token)
        if number != self._ids[name.lower()] or set(seen.positions) != set(view.positions):
            return None, True
        if epoch == self._epoch:
            return (seen, True) if seen.tick <= self.number else (None, True)
        # After a crash, new tuples may reuse the numbers of tuples that were lost before they were synced.
        known = all(seen.positions[s.stream.name] <= s.opened for s in view.sources) and seen.now <= view.now
        return (seen, False) if known else (None, True)

    # --- status --------------------------------------------------------------------------------------------------

    def status(self) -> list[QueryStatus]:
        with self.lock:
            watched: dict[str, int] = {}
            for feed in self._feeds:
                watched[feed.name.lower()] = watched.get(feed.name.lower(), 0) + 1
            return [self._status(name, watched.get(name, 0)) for name in sorted({*self._queries, *self._stored})]

    def _status(self, name: str, subscribers: int) -> QueryStatus:
        if (stored := self._stored.get(name)) is not None and name not in self._queries:
            return QueryStatus(
                stored.name, stored.statement, BEGINNING, 0, 0, 0, 0, 0, 0.0, 0.0, None, "starting", "", "", 0, 0, None
            )
        view = self._queries[name]
        shown = self._names[name]
        if not isinstance(view, View):
            return QueryStatus(
                shown, self._ids[name], 0, 0, 0, 0, 0, 0, 0.0, 0.0, None, "", "", "", 0, subscribers, str(view)
            )
        budget = view.standing.budget
        problem = view.failed
        try:
            size = 0 if problem is not None else view.size
        except PromisingError as found:
            size, problem = 0, found
        return QueryStatus(
            shown,
            view.standing.statement,
            view.watermark,
            view.lag,
            size,
            view.came,
            view.went,
            sum(reader.late for reader in view.readers),
            view.shed,
            view.cpu / 1e9,
            None if budget is None else budget / 1e6,
            str(view.label),
            view.store,
            str(view.mode),
            view.nbytes,
            subscribers,
            None if problem is None else str(problem),
        )

    @property
    def nbytes(self) -> int:
        with self.lock:
            return sum(s.nbytes for s in self._sources.values()) + sum(v.nbytes for v in self._views.values())

    def close(self) -> None:
        with self.lock:
            self._stored.clear()
            self._views.clear()
            self._planned.clear()
            self._queries.clear()
            self._sources.clear()
            self._feeds.clear()


def _shape(view: View) -> tuple[pa.Schema, bool, bool, int]:
    """The properties a subscriber relies on."""
    return view.schema, view.keyed, view.endless, view.width
