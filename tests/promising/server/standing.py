"""Standing queries that a test moves by hand, in place of the engine, for tests of what is around it."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from promising.errors import NoSuchName
from promising.query.standing.engine import QueryStatus
from promising.query.standing.subscription import Delta

SCHEMA = pa.schema([("item", pa.int64()), ("name", pa.string())])
FAR = 1 << 60


@dataclass
class View:
    """Rows by their number: item, name, end, and the tick that brought them; and those that were retracted."""

    schema: pa.Schema = SCHEMA
    rows: dict[int, tuple[int, str, int, int]] = field(default_factory=dict)
    gone: dict[int, tuple[int, int]] = field(default_factory=dict)
    now: int = 0
    changed: int = 0
    shed: float = 0.0
    problem: Exception | None = None

    def live(self) -> list[dict[str, Any]]:
        """What a subscriber should see."""
        return [
            dict(zip(self.schema.names, (item, name), strict=True))
            for item, name, end, _ in self.rows.values()
            if end > self.now
        ]


class Feed:
    def __init__(self, engine: "Engine", name: str, seen: int | None) -> None:
        self._engine = engine
        self._name = name
        self._seen = seen
        self.schema = engine.views[name].schema
        self.keyed = self.endless = False
        self.key_width = 2

    def take(self) -> Delta | None:
        with self._engine.lock:
            self._engine.takes += 1
            view = self._engine.views.get(self._name)
            if view is None:
                raise NoSuchName(f"there is no continuous query {self._name!r}")
            if view.problem is not None:
                raise view.problem
            if self._seen is not None and view.changed <= self._seen:
                return None
            seen, self._seen = self._seen, self._engine.number
            reset = seen is None
            if view.schema != self.schema:
                self.schema, reset, seen = view.schema, True, None
            since = -1 if seen is None else seen
            new = {at: row for at, row in view.rows.items() if row[3] > since and row[2] > view.now}
            gone = [] if reset else [at for at, (born, tick) in view.gone.items() if born <= since < tick]
            return Delta(
                tick=self._engine.number,
                watermark=view.now,
                reset=reset,
                inserts=pa.table([[r[0] for r in new.values()], [r[1] for r in new.values()]], schema=self.schema),
                ids=np.array([[at, -at] for at in new], np.int64).reshape(-1, 2),
                exp=np.array([row[2] for row in new.values()], np.int64),
                retractions=np.array([[at, -at] for at in gone], np.int64).reshape(-1, 2),
                token=str(self._engine.number),
                shed=view.shed,
            )

    def close(self) -> None:
        self._engine.feeds.discard(self)


class Engine:
    """As `promising.query.standing.engine.Engine`, with views that `put`, `retract` and `at` change."""

    def __init__(self, *names: str) -> None:
        self.lock = threading.RLock()
        self.number = 0
        self.views = {name: View() for name in names}
        self.feeds: set[Feed] = set()
        self.takes = 0
        self.idle: list[int | None] = []
        self.nbytes = 7
        self._numbers = 0

    def put(self, name: str, *items: int, end: int = FAR, text: str = "x") -> list[int]:
        """New rows; their numbers."""
        with self.lock:
            view = self._changed(name)
            first = self._numbers
            self._numbers += len(items)
            for at, item in enumerate(items, first):
                view.rows[at] = (item, text, end, self.number)
            return list(range(first, self._numbers))

    def retract(self, name: str, *numbers: int) -> None:
        with self.lock:
            view = self._changed(name)
            for at in numbers:
                view.gone[at] = (view.rows.pop(at)[3], self.number)

    def at(self, name: str, now: int) -> None:
        with self.lock:
            self._changed(name).now = now

    def _changed(self, name: str) -> View:
        self.number += 1
        self.views[name].changed = self.number
        return self.views[name]

    def tick(self, *, idle: int | None = None, silence: int = 0, capacity: float | None = None) -> int:
        with self.lock:
            self.idle = [idle]
            return self.number

    def subscribe(self, name: str, token: str | None = None) -> Feed:
        with self.lock:
            if name not in self.views:
                raise NoSuchName(f"there is no continuous query {name!r}")
            feed = Feed(self, name, None if token is None else int(token))
            self.feeds.add(feed)
            return feed

    def status(self) -> list[QueryStatus]:
        return [
            QueryStatus(
                name=name,
                statement="SELECT",
                watermark=view.now,
                lag=2_500_000,
                size=len(view.live()),
                came=len(view.rows) + len(view.gone),
                went=len(view.gone),
                late=3,
                shed=view.shed,
                cpu_seconds=0.25,
                budget=0.5,
                label="STR",
                store="hash",
                mode="piggyback",
                bytes=100,
                subscribers=len(self.feeds),
                problem=None if view.problem is None else str(view.problem),
            )
            for name, view in sorted(self.views.items())
        ]

    def close(self) -> None:
        self.views.clear()
