"""Random lives of standing queries, as lists of plain events that can be told again, in part or in whole."""

import random
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.query.standing.oracle import History, Query, Row, TableLog, selects
from tests.query.standing.random_plans import FLOATS, SECOND, STREAMS, TABLES, WORDS, Plans

START = 1_767_225_600 * SECOND  # 2026-01-01
STRANGE = (float("nan"), float("inf"), float("-inf"))


@dataclass(frozen=True)
class Ingest:
    stream: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Advance:
    """Silence: the stream says that it has come to a time."""

    stream: str
    time: int


@dataclass(frozen=True)
class Change:
    """INSERT, UPSERT, UPDATE or DELETE; some cannot be done, and change nothing."""

    table: str
    word: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Create:
    name: str
    query: Query
    budget: int | None = None


@dataclass(frozen=True)
class Drop:
    name: str


@dataclass(frozen=True)
class Subscribe:
    """One more subscriber of a query."""

    reader: str
    name: str


@dataclass(frozen=True)
class Sleep:
    """A subscriber stops reading; with `cut` its connection is gone, and it has nothing but its view and its token."""

    reader: str
    cut: bool


@dataclass(frozen=True)
class Wake:
    reader: str


@dataclass(frozen=True)
class Restart:
    """The process ends, in order or by a kill, and the store is opened again."""

    killed: bool


@dataclass(frozen=True)
class Unleash:
    """All budgets are taken away."""


@dataclass(frozen=True)
class Tick:
    """All who are awake read."""


Event: TypeAlias = Ingest | Advance | Change | Create | Drop | Subscribe | Sleep | Wake | Restart | Unleash | Tick


@dataclass(frozen=True)
class Shape:
    """What a life is like."""

    ticks: int = 40
    queries: int = 4
    tables: bool = True
    strange: bool = False
    """NaN and infinities."""
    restarts: float = 0.0
    """Chance of one before a tick."""
    budget: bool = False
    growing: bool = False
    nulls: float = 0.1
    keys: int = 4
    largest: int = 20
    """Tuples of a batch, at most."""


# --- what they mean ----------------------------------------------------------------------------------------------


def empty(retroactive: dict[str, bool]) -> History:
    """Before anything has happened."""
    tables = {name: TableLog(next(iter(TABLES[name])), said) for name, said in retroactive.items()}
    return History({name: [] for name in STREAMS}, {}, tables)


def changed(log: TableLog, change: Change) -> dict[Any, Row] | None:
    """The contents of a table after a change; None if it cannot be made."""
    after = dict(log.contents[-1])
    for row in change.rows:
        key = row[log.key]
        there = key in after
        if there if change.word == "INSERT" else not there and change.word in ("UPDATE", "DELETE"):
            return None
        if change.word == "DELETE":
            del after[key]
        else:
            after[key] = row
    return after


# --- making them -------------------------------------------------------------------------------------------------


class Lives:
    """Makes events. It keeps a clock of its own only to make tuples that are late, and by how much."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape
        self.plans = Plans(rng, growing=shape.growing, tables=tuple(TABLES) if shape.tables else ())
        self.clock = START
        self.offered = 0
        self.alive: list[str] = []
        self.asked: list[Query] = []
        self.made = 0
        self.readers: dict[str, str] = {}
        self.asleep: set[str] = set()

    def events(self) -> list[Event]:
        rng, shape = self.rng, self.shape
        made: list[Event] = []
        if shape.tables:
            for table in TABLES:
                for _ in range(rng.choice((0, 1, 2))):
                    made.append(self.change(table))
        for _ in range(rng.choice((0, 0, 2))):  # before the first query
            made.append(self.ingest())
        while len(self.alive) < shape.queries:
            made += self.create()
            if rng.random() < 0.2:
                made.append(Tick())
        for _ in range(shape.ticks):
            made += self.between()
            made.append(Tick())
        if shape.budget:
            for _ in range(2):
                made += [Unleash(), Tick(), *self.between(), Tick()]
        return made

    def between(self) -> list[Event]:
        """What happens between two ticks."""
        rng, shape = self.rng, self.shape
        made: list[Event] = []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            made.append(self.ingest())
        if rng.random() < 0.08:
            made.append(self.advance())
        if shape.tables:
            for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
                made.append(self.change(rng.choice(list(TABLES))))
            if rng.random() < 0.2:
                made.append(self.ingest())
        if rng.random() < 0.04:
            made += self.create()
        if rng.random() < 0.03 and len(self.alive) > 1:
            made += self.drop()
        if self.alive and rng.random() < 0.06:
            made.append(self.subscribe(rng.choice(self.alive)))
        made += self.sleepers()
        if rng.random() < shape.restarts:
            made.append(Restart(rng.random() < 0.5))
        return made

    def create(self) -> list[Event]:
        self.made += 1
        name = f"q{self.made}"
        self.alive.append(name)
        budget = self.rng.choice((1, 20, 1000)) if self.shape.budget else None
        again = self.asked and self.rng.random() < 0.1  # queries of one text share their work
        query = self.rng.choice(self.asked) if again else self.plans.query()
        if all(select.window is not None for select in selects(query)):
            self.asked.append(query)
        return [Create(name, query, budget), self.subscribe(name)]

    def drop(self) -> list[Event]:
        name = self.rng.choice(self.alive)
        self.alive.remove(name)
        for reader in [r for r, of in self.readers.items() if of == name]:
            del self.readers[reader]
            self.asleep.discard(reader)
        return [Drop(name)]

    def subscribe(self, name: str) -> Event:
        reader = f"{name}.{sum(of == name for of in self.readers.values())}.{self.rng.randrange(10**6)}"
        self.readers[reader] = name
        return Subscribe(reader, name)

    def sleepers(self) -> list[Event]:
        rng = self.rng
        made: list[Event] = []
        for reader in list(self.readers):
            if reader in self.asleep:
                if rng.random() < 0.35:
                    self.asleep.discard(reader)
                    made.append(Wake(reader))
            elif rng.random() < 0.06:
                self.asleep.add(reader)
                made.append(Sleep(reader, rng.random() < 0.7))
        return made

    # --- data ----------------------------------------------------------------------------------------------------

    def ingest(self) -> Ingest:
        rng = self.rng
        size = rng.choice((1, 1, 2, 3, 4, 6, 9, self.shape.largest))
        burst = rng.random() < 0.3
        rows: list[Row] = []
        for _ in range(size):
            if not (burst and rows):
                self.clock += rng.choice((0, 0, 1, SECOND // 9, SECOND // 3, SECOND // 3, SECOND))
            rows.append(self.row())
        return Ingest(rng.choice(STREAMS), tuple(rows))

    def row(self) -> Row:
        rng = self.rng
        self.offered += 1
        time = self.clock
        pick = rng.random()
        if pick < 0.15:  # late, and mostly still alive
            time -= rng.choice((1, SECOND, 3 * SECOND, 5 * SECOND, rng.randrange(8 * SECOND)))
        elif pick < 0.18:  # dead on arrival
            time -= rng.randrange(20 * SECOND, 60 * SECOND)
        elif pick < 0.185:  # from the future, so everybody else is late from now on
            time += rng.randrange(5 * SECOND)
            self.clock = time if rng.random() < 0.5 else self.clock
        number = rng.random
        null = self.shape.nulls
        strange = STRANGE if self.shape.strange and number() < 0.15 else FLOATS
        return {
            "ts": time,
            "id": self.offered,
            "k": None if number() < null else rng.randrange(self.shape.keys),
            "n": None if number() < null else rng.choice((-3, -1, 0, 1, 1, 2, 2, 3)),
            "w": None if number() < null else rng.choice(WORDS),
            "f": None if number() < null else rng.choice(strange),
            "b": None if number() < null else number() < 0.5,
        }

    def advance(self) -> Advance:
        rng = self.rng
        if rng.random() < 0.2:  # back, which is no news
            return Advance(rng.choice(STREAMS), self.clock - rng.randrange(9 * SECOND))
        self.clock += rng.choice((SECOND // 2, SECOND, 2 * SECOND, 5 * SECOND, 9 * SECOND, 40 * SECOND))
        return Advance(rng.choice(STREAMS), self.clock)

    def change(self, table: str) -> Change:
        rng = self.rng
        key = next(iter(TABLES[table]))
        keys: list[Any] = list(range(-1, self.shape.keys + 1)) if key == "k" else list(WORDS)
        word = rng.choice(("INSERT", "UPSERT", "UPSERT", "UPDATE", "DELETE"))
        count = rng.choice((1, 1, 2, 3)) if word != "UPDATE" else 1
        rows = []
        for value in rng.sample(keys, count):
            row: dict[str, Any] = {key: value}
            if word != "DELETE":
                row |= {name: self.cell(kind) for name, kind in list(TABLES[table].items())[1:]}
            rows.append(row)
        return Change(table, word, tuple(rows))

    def cell(self, kind: str) -> Any:
        rng = self.rng
        if rng.random() < self.shape.nulls:
            return None
        if kind == "int":
            return rng.choice((-1, 0, 1, 2, 3))
        if kind == "bool":
            return rng.random() < 0.5
        return rng.choice(FLOATS if kind == "float" else WORDS)
