"""Random streams, and beside each a model that says which tuples it must hold.

The model shares no code with the engine: it takes one tuple at a time, by the rules of `promising.testing.Oracle`, and
asks one oracle of time for each summary which of its zones KEEP retains.
"""

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from promising.errors import BatchError
from promising.query import Session
from promising.testing import ManualClock, Oracle
from tests.index.world import ColdShelf, cool

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_767_225_600 * SECOND  # 2026-01-01
FUTURE = 30 * SECOND

COLUMNS = {
    "ts": ("TIMESTAMP", pa.timestamp("us")),
    "id": ("BIGINT", pa.int64()),
    "k": ("INT", pa.int64()),
    "w": ("VARCHAR", pa.string()),
    "n": ("INT", pa.int64()),
    "g": ("BIGINT", pa.int64()),
    "u": ("TEXT", pa.string()),
    "f": ("DOUBLE", pa.float64()),
    "b": ("BOOLEAN", pa.bool_()),
    "t": ("TIMESTAMP", pa.timestamp("us")),
}
KEYS = ("k", "w", "n", "u")
STRUCTURES = ("none", "time", "grid", "adaptive")
SMALL = (
    "OPTIONS (buckets = 4, depth = 3, width = 8, maxlength = 256, tolerance = 4, filter_bits = 256, coarse_bits = 512)"
)
UNPOSTED = SMALL.replace("(", "(postings = off, ")

WORDS = ["", "a", "A", "tea", "Tea", "tea%", "jam_1", "é", "日本", "😀", " x", "it's", "zz", "long " * 9]
NUMBERS = [0, 0, 1, 2, 3, 5, 7, -1, -4, 12, 100]
GIANTS = [2**63 - 1, -(2**63), 2**53, 2**53 + 1, 2**53 - 1, -(2**53), -(2**53) - 1, 0, 3]
FLOATS = [
    0.0,
    -0.0,
    0.25,
    0.5,
    1.0,
    1.5,
    2.0,
    -2.5,
    3.0,
    7.75,
    12.0,
    2.0**53,
    float("nan"),
    float("inf"),
    float("-inf"),
]

Row = dict[str, Any]


class Model:
    """What one stream must hold: every tuple accepted, the watermark, and the oldest time that it keeps."""

    def __init__(self, name: str, clock: ManualClock, lateness: int, keep: int | None) -> None:
        self.name = name
        self.clock = clock
        self.lateness = lateness
        self.keep = keep
        self.summaries: dict[str, tuple[str, str]] = {}
        """Key column and structure, by name."""
        self.accepted: list[Row] = []
        self.offered = 0
        self.refused: dict[str, int] = {}
        self.watermark: int | None = None
        self.latest: int | None = None
        self.time: int | None = None
        """The latest time seen when the clock had come to it."""
        self.floor: int | None = None
        """Older tuples have been removed; it moves when the watermark is set."""
        self._oracles: list[Oracle] = []

    def summarise(self, name: str, key: str, structure: str, granularity: int, collapse: tuple[int, int]) -> None:
        self.summaries[name] = key, structure
        oracle = Oracle("ts", key, granularity=granularity, collapse=collapse, keep=self.keep, clock=self.clock)
        if self.watermark is not None:
            oracle.advance(self.watermark)
        self._oracles.append(oracle)

    @property
    def known(self) -> set[str]:
        """Columns that have a summary."""
        return {key for key, _ in self.summaries.values()}

    @property
    def oldest(self) -> int | None:
        """The least time that is accepted at the watermark; None as long as nothing is removed."""
        if self.keep is None or self.watermark is None:
            return self.floor
        eighth = self.keep // 8  # what is removed at once without a summary
        bare = (self.watermark - self.keep) // eighth * eighth
        kept = min((h for o in self._oracles if (h := o.horizon(o.levels)) is not None), default=bare)
        return kept if self.floor is None else max(kept, self.floor)

    def offer(self, row: Row) -> None:
        self.offered += 1
        self.follow()
        oldest = self.oldest
        if row["ts"] > self.clock() + FUTURE:
            self._refuse("too_far_ahead")
        elif oldest is not None and row["ts"] < oldest:
            self._refuse("too_old")
        else:
            self.accepted.append(row)
            self.latest = row["ts"] if self.latest is None else max(self.latest, row["ts"])
            self.follow()

    def follow(self) -> None:
        """The watermark follows the latest tuple, but not past the clock."""
        if self.latest is not None:
            seen = min(self.latest, self.clock())
            self.time = seen if self.time is None else max(self.time, seen)
            self.advance(min(self.latest - self.lateness, self.clock()))

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def advance(self, watermark: int) -> None:
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)
        for oracle in self._oracles:
            oracle.advance(self.watermark)
        self.floor = self.oldest

    def live(self) -> list[Row]:
        return [row for row in self.accepted if self.floor is None or row["ts"] >= self.floor]

    def granularities(self) -> set[int]:
        """Those that hold tuples, over all summaries."""
        return {g for o in self._oracles for row in self.live() if (g := o.granularity_of(row["ts"])) is not None}

    @property
    def now(self) -> int | None:
        return max((x for x in (self.time, self.watermark) if x is not None), default=None)


class World:
    """Three streams of one shape with summaries of every kind; `gamma` has none, ever.

    `grow` adds tuples to all of them; `tables` shows DuckDB what they hold.
    """

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.rng = rng = random.Random(f"world {seed}")
        if monkeypatch is not None and rng.random() < 0.6:  # chunks so small that they are freed and used again
            monkeypatch.setattr("promising.index.log.CHUNK", rng.choice((16, 64, 256)))
        self.clock = ManualClock(START + rng.randrange(MINUTE))
        self.session = Session(clock=self.clock, seed=seed)
        self.step = rng.choice((SECOND // 20, SECOND // 4, SECOND, 3 * SECOND))  # event time from tuple to tuple
        self.domain = rng.choice((3, 12, 40, 300))  # of keys
        self.models: dict[str, Model] = {}
        self.waiting: dict[str, tuple[int, tuple[int, int]]] = {}
        self.ids = 0
        self.chilly = random.Random(f"cold {seed}").random() < 0.5
        self.shelves = {name: ColdShelf() for name in ("alpha", "beta", "gamma")}
        self.cooled = 0
        for name in ("alpha", "beta", "gamma"):
            self._create(name)

    def _create(self, name: str) -> None:
        rng = self.rng
        lateness = rng.choice((0, 0, 2 * SECOND, 10 * SECOND))
        first = self._geometry()
        geometries = [first if rng.random() < 0.5 else self._geometry() for _ in range(rng.choice((1, 1, 2, 3, 4)))]
        keep = None
        if rng.random() < 0.75:
            keep = max(lateness, 8 * max(granularity for granularity, _ in [first, *geometries]))
            keep = round(keep * rng.choice((1, 1, 1.3, 2, 5)))
        model = self.models[name] = Model(name, self.clock, lateness, keep)
        columns = ", ".join(f"{column} {kind}" for column, (kind, _) in COLUMNS.items())
        late = f" LATENESS {lateness} MICROSECONDS" if lateness else ""
        kept = "" if keep is None else f" KEEP {keep} MICROSECONDS"
        self.session.execute(
            f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts{late}{kept}"
            f" OPTIONS (max_tuples = 65536, max_future_seconds = {FUTURE // SECOND})"
        )
        if name == "gamma":
            return
        if rng.random() < 0.15:
            self.waiting[name] = first  # its first summary comes when tuples are there already
            return
        for number, geometry in enumerate(geometries):
            self._summarise(model, number, geometry)

    def _geometry(self) -> tuple[int, tuple[int, int]]:
        rng = self.rng
        granularity = max(1, round(self.step * rng.choice((3.3, 10, 10, 47))))
        return granularity, (rng.choice((2, 2, 3, 5)), rng.choice((1, 2, 3, 3, 4)))

    def _summarise(self, model: Model, number: int, geometry: tuple[int, tuple[int, int]]) -> None:
        key = KEYS[number] if self.rng.random() < 0.8 else self.rng.choice(KEYS[:2])
        structure = self.rng.choice(STRUCTURES)
        granularity, (rate, depth) = geometry
        name = f"{model.name}_{number}"
        self.session.execute(
            f"CREATE SUMMARY {name} ON {model.name} ({key}) WITH GRANULARITY {granularity} MICROSECONDS"
            f" AND COLLAPSE ({rate}, {depth}) STRUCTURE {structure} {self.rng.choice((SMALL, SMALL, UNPOSTED))}"
        )
        model.summarise(name, key, structure, granularity, (rate, depth))

    # --- tuples --------------------------------------------------------------------------------------------------

    def grow(self, tuples: int) -> None:
        """Add about so many tuples to every stream, in batches small and large, and tell the models."""
        for name, model in self.models.items():
            left = self.rng.randrange(tuples // 2, tuples + 1)
            while left > 0:
                size = min(left, self.rng.choice((1, 2, 7, 40, 400)))
                self._ingest(model, [self._row(model) for _ in range(size)])
                left -= size
            if self.rng.random() < 0.2 and model.now is not None:
                watermark = min(model.now + self.rng.randrange(-5, 20) * self.step, self.clock())
                model.follow()
                self.session.advance(name, watermark)
                model.advance(watermark)
            if name in self.waiting:
                for number in range(2):
                    if number == 0 or self.rng.random() < 0.5:
                        self._summarise(model, number, self.waiting[name])
                del self.waiting[name]
            if self.chilly:  # all that can leave memory does
                while cool(self.session.stream(name), self.shelves[name], 0, 3):
                    self.cooled += 1

    def _ingest(self, model: Model, rows: list[Row]) -> None:
        table = as_table(rows)
        if self.rng.random() < 0.05 and model.summaries:  # refused as a whole: nothing may remain of it
            key = self.rng.choice(sorted(model.known))
            with pytest.raises(BatchError):
                self.session.ingest(model.name, as_table([{**row, key: None} for row in rows]))
        before = len(model.accepted), dict(model.refused)
        appended = self.session.ingest(model.name, table)
        for row in rows:
            model.offer(row)
        refused = {r: c - before[1].get(r, 0) for r, c in model.refused.items() if c > before[1].get(r, 0)}
        assert (appended.accepted, appended.refused) == (len(model.accepted) - before[0], refused)

    def _row(self, model: Model) -> Row:
        rng = self.rng
        self.clock.tick(rng.randrange(2 * self.step) // 3)  # three streams share the time
        self.ids += 1
        ts = self.clock() - rng.randrange(1 + model.lateness)
        luck = rng.random()
        if luck < 0.08:
            ts -= rng.randrange(1, 400) * self.step  # late: refused, or put where it belongs
        elif luck < 0.1:
            ts += rng.randrange(2 * FUTURE)  # ahead: refused if too far
        elif luck < 0.3:
            ts -= ts % self.step  # ties
        row: Row = {"ts": ts, "id": self.ids}
        row["k"] = min(int(rng.paretovariate(0.7)), self.domain) - 3
        row["w"] = rng.choice(WORDS) if self.domain < 30 or rng.random() < 0.3 else f"item {rng.randrange(self.domain)}"
        row["n"] = rng.choice(NUMBERS)
        row["g"] = rng.choice(GIANTS)
        row["u"] = rng.choice(WORDS)
        row["f"] = rng.choice(FLOATS) if rng.random() < 0.7 else rng.gauss(0, 50)
        row["b"] = rng.random() < 0.5
        row["t"] = ts - ts % SECOND - rng.choice((0, 0, SECOND, MINUTE, 86_400 * SECOND))
        must = {"ts", "id", *model.known} | (set(KEYS) if model.name in self.waiting else set())
        return {c: v if c in must or rng.random() > 0.12 else None for c, v in row.items()}

    # --- what DuckDB sees ----------------------------------------------------------------------------------------

    def tables(self, duck: duckdb.DuckDBPyConnection) -> None:
        for name, model in self.models.items():
            data = as_table(model.live())  # DuckDB finds it by its name
            duck.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM data")
            assert data.num_rows <= len(model.accepted)


def as_table(rows: list[Row]) -> pa.Table:
    return pa.table({c: pa.array([row[c] for row in rows], kind) for c, (_, kind) in COLUMNS.items()})
