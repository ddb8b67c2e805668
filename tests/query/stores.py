"""Two small streams to ask, a CPU clock that only ticks when it is read, and the answers by brute force."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.query import Answer, Frame, Progress, Session
from promising.testing.streams import zipf_law

SECOND = 1_000_000
UNPOSTED = "adaptive OPTIONS (postings = off)"
"""Instead of a structure: one without postings."""
MS = 1_000_000
"""Nanoseconds of CPU time."""
SLICE_MS = 10
"""What a slice of work seems to take, in milliseconds: so much that slices stay as small as they get."""

Row = tuple[Any, ...]
Columns = dict[str, NDArray[Any]]


class Ticking:
    """CPU time that goes on by `step` nanoseconds whenever somebody looks."""

    def __init__(self, step: int = SLICE_MS * MS) -> None:
        self.step = step
        self.now = 0

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def tuples(
    n: int,
    keys: int,
    *,
    seed: int,
    start: float = 0.0,
    seconds: float = 40.0,
    exponent: float = 1.0,
    strings: bool = False,
) -> Columns:
    """`n` tuples with keys by Zipf's law, in order of time over `seconds` from `start` on; `id` numbers them."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(keys, n, p=zipf_law(keys, exponent))
    return {
        "id": np.arange(n) + 1_000_000 * seed,
        "k": np.array([f"item {k}" for k in drawn], object) if strings else drawn,
        "ts": np.sort(rng.integers(int(start * SECOND), int((start + seconds) * SECOND), n)),
        "price": np.round(rng.gamma(2.0, 5.0, n), 2),
        "n": rng.integers(1, 10, n),
    }


def together(*parts: Columns) -> Columns:
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


@dataclass
class Stores:
    """A session with streams a and b, and what they hold."""

    session: Session
    cpu: Ticking
    held: dict[str, list[Columns]] = field(default_factory=lambda: {"a": [], "b": []})

    def ingest(self, stream: str, columns: Columns) -> None:
        done = self.session.ingest(stream, {name: list(c) if c.dtype == object else c for name, c in columns.items()})
        assert done.accepted == len(columns["ts"])
        self.held[stream].append(columns)

    def columns(self, stream: str) -> Columns:
        return together(*self.held[stream])

    def window(self, seconds: float | None, *streams: str) -> list[Columns]:
        """What streams have in the last so many seconds, up to the latest time that any of them has."""
        all_of = [self.columns(name) for name in streams]
        if seconds is None:
            return all_of
        after = max(int(c["ts"].max()) for c in all_of) - int(seconds * SECOND)
        return [{name: c[columns["ts"] > after] for name, c in columns.items()} for columns in all_of]

    def pairs(
        self, seconds: float | None = None, where: Callable[[Row, Row], bool] | None = None
    ) -> set[tuple[int, int]]:
        """Ids of all pairs with one key."""
        a, b = (_rows(c) for c in self.window(seconds, "a", "b"))
        of_key = defaultdict(list)
        for row in b:
            of_key[row[1]].append(row)
        return {(x[0], y[0]) for x in a for y in of_key[x[1]] if where is None or where(x, y)}

    def selected(self, seconds: float | None = None, where: Callable[[Row], bool] | None = None) -> set[tuple[int]]:
        """Ids of the tuples of a."""
        return {(x[0],) for x in _rows(self.window(seconds, "a")[0]) if where is None or where(x)}


def _rows(columns: Columns) -> list[Row]:
    """(id, k, ts, price, n) of each tuple."""
    return list(zip(*(columns[c].tolist() for c in ("id", "k", "ts", "price", "n")), strict=True))


def stores(
    *,
    structure: str = "adaptive",
    strings: bool = False,
    step: int = SLICE_MS * MS,
    seed: int = 5,
    granularity: float = 4.0,
    collapse: tuple[int, int] = (2, 4),
    keep: str = "ALL",
) -> Stores:
    """Empty streams a and b, each with a summary on its key."""
    cpu = Ticking(step)
    session = Session(clock=lambda: 1 << 60, cpu=cpu, seed=seed)
    kind = "VARCHAR" if strings else "BIGINT"
    for name in ("a", "b"):
        session.execute(
            f"CREATE STREAM {name} (id BIGINT, k {kind}, ts TIMESTAMP, price DOUBLE, n BIGINT) TIMESTAMP BY ts"
            f" KEEP {keep}"
        )
        session.execute(
            f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY {granularity} SECONDS AND"
            f" COLLAPSE {collapse} STRUCTURE {structure}"
        )
    return Stores(session, cpu)


def filled(n: int = 2_000, keys: int = 200, *, batches: int = 3, data: int = 1, **how: Any) -> Stores:
    """Stores with `n` tuples each over 40 seconds of event time."""
    made = stores(**how)
    strings = bool(how.get("strings", False))
    for part in range(batches):
        for number, name in enumerate(("a", "b")):
            made.ingest(
                name,
                tuples(
                    n // batches,
                    keys,
                    seed=1000 * data + 10 * part + number,
                    start=40.0 * part / batches,
                    seconds=40.0 / batches,
                    strings=strings,
                ),
            )
    return made


def rows_of(answer: Answer) -> list[Row]:
    """All rows, in the order they come."""
    return as_rows(answer.to_arrow())


def as_rows(table: Any) -> list[Row]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


def frames(answer: Answer) -> list[Frame]:
    return list(answer)


def pieces(
    made: Stores,
    sql: str,
    budgets: Callable[[int], float | None],
    seed: int | None = None,
    between: Callable[[int], None] | None = None,
) -> tuple[list[list[Row]], list[Progress]]:
    """Ask, and go on with the token until nothing is left: the rows of each piece, and every progress on the way.

    budgets: of each piece by its number, in seconds. between: what happens before a piece is taken up again.
    """
    answer = made.session.query(sql, budget=budgets(0), seed=seed)
    rows: list[list[Row]] = []
    progress: list[Progress] = []
    while True:
        rows.append([])
        for frame in answer:
            assert frame.mode == "append"
            rows[-1] += as_rows(frame.rows)
            progress.append(frame.progress)
        token = answer.progress.token
        assert (token is None) == answer.progress.complete
        if token is None:
            return rows, progress
        if between is not None:
            between(len(rows))
        answer = made.session.resume(token, budget=budgets(len(rows)))
