"""One life of standing queries, on a session and on the model beside it, compared at each tick."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import promising.query.session
from promising.errors import PromisingError
from promising.index.storage.store import Store
from promising.query import Session
from promising.query.standing.deltas import Mode
from promising.query.standing.engine import Engine, Feed
from promising.query.standing.subscription import Delta, LiveView, Subscription
from tests.index.storage.lives import abandon
from tests.query.standing import oracle
from tests.query.standing.oracle import LONG_AGO, Bag, History, plain, rounded
from tests.query.standing.random_events import (
    START,
    Advance,
    Change,
    Create,
    Drop,
    Event,
    Ingest,
    Restart,
    Sleep,
    Subscribe,
    Tick,
    Unleash,
    changed,
    empty,
)
from tests.query.standing.random_plans import ARROW, COLUMNS, STREAMS, TABLES, TYPES


class Untrue(AssertionError):
    """A view that is not what it must be."""


# --- rows and statements --------------------------------------------------------------------------------------------


def bag(table: pa.Table) -> Bag:
    """The rows of a table."""
    columns = []
    for column in table.columns:
        numbers = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns.append(numbers.to_pylist())
    return rounded(Counter(tuple(map(plain, row)) for row in zip(*columns, strict=True)))


def change_text(change: Change) -> str:
    """A change of a table as a statement."""
    names = list(TABLES[change.table])
    key = names[0]
    if change.word == "DELETE":
        keys = [_constant(row[key]) for row in change.rows]
        if len(keys) == 1:
            return f"DELETE FROM {change.table} WHERE {key} = {keys[0]}"
        return f"DELETE FROM {change.table} WHERE {key} IN ({', '.join(keys)})"
    if change.word == "UPDATE":
        (row,) = change.rows
        given = ", ".join(f"{name} = {_constant(row[name])}" for name in names[1:])
        return f"UPDATE {change.table} SET {given} WHERE {key} = {_constant(row[key])}"
    rows = ", ".join("(" + ", ".join(_constant(row[name]) for name in names) + ")" for row in change.rows)
    return f"{change.word} INTO {change.table} ({', '.join(names)}) VALUES {rows}"


def _constant(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


# --- a life ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What does not change in a life."""

    mode: Mode = Mode.PIGGYBACK
    retroactive: tuple[bool, ...] = (True, False)
    """Of each table."""
    summaries: bool = False
    """Whether streams let go of old tuples."""
    durable: bool = False
    tight: bool = False
    """Whether everything begins with so little room that it grows, shrinks and is numbered anew all the time."""


TIGHT = {
    "promising.query.standing.operators.entry_store.LEAST": 4,
    "promising.query.standing.operators.entry_store.SLOTS": 8,
    "promising.query.standing.operators.distinct.LEAST": 4,
    "promising.query.standing.operators.group.LEAST": 4,
    "promising.query.standing.operators.deferred_probes.CHUNK": 2,
    "promising.query.standing.column_cache.LEAST": 4,
    "promising.query.standing.stream_source.LARGEST": 16,
    "promising.query.standing.stores.LEAST": 2,
    "promising.query.standing.stores.SLOTS": 4,
    "promising.query.standing.subscription.CHUNKS": 2,
    "promising.query.standing.views.REMEMBERED": 8,
    "promising.index.growing.LEAST": 2,
    "promising.index.log.CHUNK": 32,
}


@contextmanager
def in_little_room(tight: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in TIGHT.items() if tight else ():
            stack.enter_context(patch(name, value))
        yield


@dataclass
class Client:
    """One subscriber: its view and its token are all that it keeps when its connection is gone."""

    query: str
    subscription: Subscription | None
    view: LiveView
    token: str | None = None
    asleep: bool = False
    orphaned: bool = False
    """Whether the process that it last read from has ended."""
    seen: dict[str, int] = field(default_factory=dict)
    """Arrivals of each stream when it read last."""


class Life:
    """Carries out events on a session and on the model, and compares them at each tick."""

    def __init__(self, setting: Setting, folder: Path | None = None) -> None:
        self.setting = setting
        self.folder = folder
        self.history = empty(dict(zip(TABLES, setting.retroactive, strict=True)))
        self.queries: dict[str, Create] = {}
        self.admissions: dict[str, list[tuple[dict[str, int], int]]] = {}
        self.clients: dict[str, Client] = {}
        self.watermarks = 0
        """Delivered and compared."""
        self.full = 0
        """Of these, those with rows in the view."""
        self.partial = 0
        """Views of queries with a budget that had less than all."""
        self.resets = 0
        self.restarts = 0
        self.resumed = 0
        """Clients that came back and were told no more than what had changed."""
        self.survived = 0
        """Of these, those that came back to another process."""
        self.noted: dict[str, tuple[int, Bag]] = {}
        """In `ita`: the time that each query was last told, and the truth as it was known by then."""
        self.shown: dict[str, tuple[int, Bag]] = {}
        """In `ita`: what the first who looked was shown of that."""
        self._memo: dict[tuple[str, int], Bag] = {}
        self.session = self.opened()
        self._define()

    def opened(self) -> Session:
        store = None if self.folder is None else Store.open(self.folder, seed=5, clock=lambda: 1 << 60)
        with patch.object(promising.query.session, "Engine", partial(Engine, self.setting.mode)):
            return Session(clock=lambda: 1 << 60, seed=5, store=store)

    def _define(self) -> None:
        columns = ", ".join(f"{name} {TYPES[kind]}" for name, kind in COLUMNS.items())
        for name in STREAMS:
            self.session.execute(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts")
            if self.setting.summaries:
                self.session.execute(
                    f"CREATE SUMMARY by_{name} ON {name} (id) WITH GRANULARITY 30 SECONDS AND COLLAPSE (2, 2)"
                )
        for (name, columns_of), said in zip(TABLES.items(), self.setting.retroactive, strict=True):
            given = ", ".join(f"{column} {TYPES[kind]}" for column, kind in columns_of.items())
            how = "RETROACTIVE" if said else "NON RETROACTIVE"
            self.session.execute(f"CREATE TABLE {name} ({given}, PRIMARY KEY ({next(iter(columns_of))})) {how}")

    def close(self) -> None:
        self.session.close()

    def run(self, events: Iterable[Event]) -> "Life":
        for number, event in enumerate(events):
            try:
                self.happen(event)
            except Exception as problem:
                problem.add_note(f"at event {number}: {event!r:.300}")
                raise
        return self

    def happen(self, event: Event) -> None:
        if isinstance(event, Tick):
            self.tick()
        elif isinstance(event, Ingest):
            self.ingest(event)
        elif isinstance(event, Advance):
            self.session.advance(event.stream, event.time)
            self.history.advance(event.stream, event.time)
        elif isinstance(event, Change):
            self.change(event)
        elif isinstance(event, Create):
            self.create(event)
        elif isinstance(event, Drop):
            self.drop(event.name)
        elif isinstance(event, Unleash):
            self.unleash()
        elif isinstance(event, Restart):
            self.restart(event.killed)
        elif isinstance(event, Subscribe):
            if event.name in self.queries:
                self.subscribe(event)
        elif event.reader in self.clients:
            client = self.clients[event.reader]
            client.asleep = isinstance(event, Sleep)
            if isinstance(event, Sleep) and event.cut:
                self.cut(client)

    # --- events --------------------------------------------------------------------------------------------------

    def ingest(self, event: Ingest) -> None:
        rows = list(event.rows)
        if not rows:  # of a life that was cut down
            return
        columns = {name: pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in COLUMNS.items()}
        added = self.session.ingest(event.stream, pa.table(columns))
        assert added.accepted == len(rows), added
        self.history.arrive(event.stream, rows)

    def change(self, event: Change) -> None:
        log = self.history.tables[event.table]
        after = changed(log, event)
        try:
            self.session.execute(change_text(event))
        except PromisingError:
            assert after is None, f"refused: {change_text(event)}"
        else:
            assert after is not None, f"should be refused: {change_text(event)}"
            log.change(after, self.history.arrived())

    def subscribe(self, event: Subscribe) -> None:
        """Some bring everything up to date themselves when they read, as a session's own subscribers do."""
        if len(self.clients) % 4 == 0:
            subscription = self.session.subscribe(event.name)
            self.clients[event.reader] = Client(event.name, subscription, subscription._view)
        else:
            feed = self.session.standing.subscribe(event.name)
            view = LiveView(feed.schema, feed.keyed, feed.endless)
            self.clients[event.reader] = Client(event.name, _reading(feed, view), view)

    def create(self, event: Create) -> None:
        if self.setting.mode is Mode.ITA or _endless(event.query):
            self.session.standing.tick()  # so that it is known which tuples were there before it
        self.queries[event.name] = event
        self.admissions[event.name] = []
        self.admit()
        self.session.execute(f"CREATE CONTINUOUS QUERY {event.name} AS {statement(event)}")
        self.note()

    def unleash(self) -> None:
        """Without its budget a query comes to show all that there is."""
        for name, event in self.queries.items():
            if event.budget is not None:
                self.session.execute(f"ALTER CONTINUOUS QUERY {name} DROP BUDGET")
                self.queries[name] = replace(event, budget=None)
                self.admissions[name] = [(self.history.arrived(), LONG_AGO)]
                self.noted.pop(name, None)  # it begins anew, with what the last tick took in

    def drop(self, name: str) -> None:
        if name in self.queries:
            self.session.execute(f"DROP CONTINUOUS QUERY {name}")
            del self.queries[name], self.admissions[name]
            self.clients = {reader: client for reader, client in self.clients.items() if client.query != name}

    def cut(self, client: Client) -> None:
        if client.subscription is not None:
            client.subscription.close()
            client.token = client.subscription.token
            client.subscription = None

    def restart(self, killed: bool) -> None:
        if self.folder is None:
            return
        self.restarts += 1
        for client in self.clients.values():
            self.cut(client)
            client.orphaned = client.token is not None
        if killed:
            assert self.session.store is not None
            abandon(self.session.store)
        else:
            self.session.close()
        self.session = self.opened()
        for known in self.admissions.values():
            known.clear()
        self.admit()
        self.noted.clear()
        self.note()

    def admit(self) -> None:
        """What the queries have come to know by now, and at which time."""
        arrived = self.history.arrived()
        for name, known in self.admissions.items():
            known.append((arrived, self.history.now(self.queries[name].query)))

    def admitted(self, name: str) -> oracle.Admitted:
        known = self.admissions[name]

        def when(stream: str, seq: int) -> int:
            return next(now for arrived, now in known if arrived[stream] > seq)

        return when if self.setting.mode is Mode.ITA else (lambda stream, seq: LONG_AGO)

    # --- comparing -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        self._memo.clear()
        self.admit()
        self.session.standing.tick()
        self.note()
        for reader, client in self.clients.items():
            if not client.asleep:
                self.read(reader, client)

    def note(self) -> None:
        """In `ita` a view is true when the time is told; who looks later sees what it was then."""
        for name, event in self.queries.items() if self.setting.mode is Mode.ITA else ():
            view = self.session.standing.view(name)
            if view.changed == self.session.standing.number and not view.endless:
                true = oracle.view(event.query, self.history, view.watermark, self.admitted(name))
                self.noted[name] = view.watermark, rounded(true)
                self.shown.pop(name, None)

    def read(self, reader: str, client: Client) -> None:
        event = self.queries[client.query]
        back = client.subscription is None
        if back:
            self.wake(client)
        assert client.subscription is not None
        delta = client.subscription.poll()
        now = self.history.now(event.query)
        where = f"{reader}, {self.setting}: {statement(event)}"
        if delta is not None:
            self.watermarks += 1
            self.resets += delta.reset
            self.resumed += back and not delta.reset
            self.survived += client.orphaned and not delta.reset
            client.orphaned = False
            if self.setting.mode is not Mode.ITA and delta.watermark != now:
                raise Untrue(f"{where}\n  delivered {delta.watermark - START}, now is {now - START}")
        if client.view.endless:
            self.compare_news(client, event, delta, where)
            return
        at = client.view.watermark
        if at is None:
            raise Untrue(f"{where}\n  no first frame")
        if self.setting.mode is not Mode.ITA:
            self.compare(client, event, now, where)
        elif delta is not None:
            self.compare_stale(client, event, at, where)

    def compare_stale(self, client: Client, event: Create, at: int, where: str) -> None:
        if at <= LONG_AGO or event.name not in self.noted:  # nothing was told yet
            return
        self.compare(client, event, at, where)
        shown = bag(client.view.snapshot())
        then = self.shown.setdefault(event.name, (at, shown))
        if then[0] == at and shown != then[1]:
            raise Untrue(f"{where}\n  at {at - START}: {shown} is not what it was when the time was told: {then[1]}")

    def wake(self, client: Client) -> None:
        feed = self.session.standing.subscribe(client.query, client.token)
        client.subscription = _reading(feed, client.view)
        client.subscription.token = client.token

    def compare(self, client: Client, event: Create, at: int, where: str) -> None:
        shown = bag(client.view.snapshot())
        told, true = self.noted.get(event.name, (None, None))
        if told != at:
            true = self._memo.get((event.name, at))
        if true is None:
            made = oracle.view(event.query, self.history, at, self.admitted(event.name))
            true = self._memo[event.name, at] = rounded(made)
        self.full += bool(true)
        missing = true - shown
        if event.budget is not None:
            self.partial += bool(missing)
            missing = Counter()
            if not oracle.growing(event.query):
                return
        if shown - true or missing:
            raise Untrue(
                f"{where}\n  at {at - START}: of {true.total()} missing {_few(missing)}, of {shown.total()} too many"
                f" {_few(shown - true)}"
            )

    def compare_news(self, client: Client, event: Create, delta: Delta | None, where: str) -> None:
        """A query without WINDOW: what came since the last reading came once, and the rest is history."""
        shown: Bag = Counter() if delta is None else bag(delta.inserts)
        before, client.seen = client.seen, self.history.arrived()
        if not before:
            before = self.admissions[event.name][0][0]
        late = History({s: rows[before[s] :] for s, rows in self.history.streams.items()}, {})
        true = rounded(oracle.view(event.query, late, 0))
        self.full += bool(true)
        gap = delta is not None and delta.reset  # it is told that something may be missing
        if shown - true or (true - shown and not gap):
            raise Untrue(f"{where}\n  news: missing {_few(true - shown)}, too many {_few(shown - true)}")


def _reading(feed: Feed, view: LiveView) -> Subscription:
    return Subscription(view, lambda timeout: feed.take(), feed.close)


def _endless(query: oracle.Query) -> bool:
    return any(select.window is None for select in oracle.selects(query))


def _few(found: Bag) -> str:
    return f"{found.total()} {found.most_common(4)}"


def statement(event: Create) -> str:
    text = oracle.ours(event.query)
    if event.budget is None:
        return text
    last = text if _endless(event.query) else text.rstrip(")")  # BUDGET is written after the last SELECT
    return f"{last} BUDGET {event.budget} MICROSECONDS{text[len(last) :]}"
