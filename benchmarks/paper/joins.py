"""What the figures of the join share: a session with the log in two streams, the statement, SIMPLE-SHJ on a window.

A window join is asked at a moment of the playback: the pairs of equal items among the tuples of the window that ends
there. Of it the product's engine returns the best first, as far as its budget goes. SIMPLE-SHJ takes the tuples of the
same window in their order of arrival, and returns what it has found when its budget is spent. Both hand over the
columns of the paper's statement: the item and both times.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.logs import Columns, Log, arrivals, batches
from benchmarks.paper.simple_shj import Rows, Side, SimpleShj
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session
from promising.summaries.kernels.jit import kernel

SECOND = 1_000_000
MINUTE = 60 * SECOND
SEED = 7
BATCH = 1 << 14
COLUMNS = "ts TIMESTAMP, item_id BIGINT, price DOUBLE, number BIGINT"
"""Of the streams; `number` is the tuple's row in the log."""
PAPER = "a.item_id, a.ts AS ts_a, b.ts AS ts_b"
NUMBERS = "a.number AS a, b.number AS b"

Ints = NDArray[np.int64]


def session_of(log: Log, geometry: str = "GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)") -> Session:
    """Both streams with a summary on the item, in memory."""
    session = Session(seed=SEED, clock=lambda: 1 << 60)
    fill(session, log, geometry)
    return session


def stored(log: Log, path: Path, geometry: str, run_tuples: int) -> Session:
    """The same in files, all that a file takes being cold: the summaries stay in memory, the tuples do not."""
    options = StoreOptions(sync="relaxed", hot_tuples=0, run_tuples=run_tuples, cache_bytes=0)
    session = Session(store=Store.open(path, seed=SEED, options=options, clock=lambda: 1 << 60))
    fill(session, log, geometry)
    return session


def fill(session: Session, log: Log, geometry: str) -> None:
    for name, columns in log.sides().items():
        session.execute(
            f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts OPTIONS (max_tuples = {max(log.rows, 1 << 18)})"
        )
        session.execute(f"CREATE SUMMARY {name}_items ON {name} (item_id) WITH {geometry}")
        for part in batches(numbered(columns), BATCH):
            session.ingest(name, part)


def numbered(columns: Columns) -> Columns:
    """The columns that the streams have."""
    kept = {name: columns[name] for name in ("ts", "item_id", "price")}
    return {**kept, "number": np.arange(len(columns["ts"]), dtype=np.int64)}


def statement(
    columns: str = PAPER, direction: str | None = "DESC", *, fade: float | None = None, tail: str = ""
) -> str:
    """The paper's Figure 6; without a direction the exact join. tail: WINDOW, LIMIT."""
    sql = f"SELECT {columns} FROM a, b WHERE a.item_id = b.item_id"
    if direction is not None:
        sql += f" WITH PREFERENCE {direction} SUMMARY.Estimate.Count(a.item_id), SUMMARY.Estimate.Count(b.item_id)"
        if fade is not None:
            sql += f" FADE FACTOR {fade}"
    return f"{sql} {tail}".rstrip()


@dataclass(frozen=True)
class Spent:
    """Pairs that came, and CPU seconds."""

    pairs: int
    cpu: float


def ask(session: Session, sql: str, budget: float | None = None) -> Spent:
    """Run a statement; its rows are made and let go."""
    began = time.thread_time_ns()
    rows = sum(frame.rows.num_rows for frame in session.query(sql, budget=budget).stream())
    return Spent(rows, (time.thread_time_ns() - began) / 1e9)


def pairs_of(session: Session, sql: str, seed: int = 0) -> tuple[Ints, Ints]:
    """Row numbers of the pairs of an answer; the statement selects NUMBERS."""
    table = session.query(sql, seed=seed).to_arrow()
    return table["a"].to_numpy(), table["b"].to_numpy()


@kernel("void(int32[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1])")
def paper_columns(rows_a: Rows, rows_b: Rows, keys_a: Ints, ts_a: Ints, ts_b: Ints, out: NDArray[np.int64]) -> None:
    """The item and both times of each pair."""
    for i in range(rows_a.size):
        out[0, i] = keys_a[rows_a[i]]
        out[1, i] = ts_a[rows_a[i]]
        out[2, i] = ts_b[rows_b[i]]


class Window:
    """A stretch of a log as SIMPLE-SHJ takes it: rows from `first` up to `last` of each side, in order of arrival."""

    def __init__(self, log: Log, start: int | None = None, end: int | None = None) -> None:
        """start, end: times; None for no bound."""
        self.first = tuple(0 if start is None else int(np.searchsorted(s["ts"], start)) for s in (log.a, log.b))
        last = [log.rows if end is None else int(np.searchsorted(s["ts"], end)) for s in (log.a, log.b)]
        cut = [
            {name: np.ascontiguousarray(column[first:until]) for name, column in side.items()}
            for side, first, until in zip((log.a, log.b), self.first, last, strict=True)
        ]
        self.log = Log(log.name, *cut)
        self.a, self.b = (Side(side["item_id"], side["ts"]) for side in cut)
        self.side, self.row = arrivals(self.log)

    def join(self) -> SimpleShj:
        return SimpleShj(self.a, self.b, self.side, self.row)

    @property
    def exact(self) -> int:
        """Pairs of the whole window."""
        return int((per_key := key_counts(self.a.keys, self.b.keys))[1] @ per_key[2])

    def simple(self, budget: float | None = None) -> Spent:
        """Run SIMPLE-SHJ; its rows are made and let go. Making room for them is not counted."""
        join = self.join()
        out = np.zeros((3, 1 << 16), np.int64)
        began = time.thread_time_ns()
        rows = 0
        for a, b in join.run(None if budget is None else int(budget * 1e9)):
            paper_columns(a, b, self.a.keys, self.a.ts, self.b.ts, out)
            rows += len(a)
        return Spent(rows, (time.thread_time_ns() - began) / 1e9)

    def prefix(self, most: int) -> tuple[Ints, Ints]:
        """The first `most` pairs of SIMPLE-SHJ, as rows of this window."""
        return taken(self.join().run(), most)


def taken(parts: Iterator[tuple[Rows, Rows]], most: int) -> tuple[Ints, Ints]:
    """The first `most` pairs of slices, copied."""
    left, out = most, []
    for a, b in parts:
        out.append((a[:left].astype(np.int64), b[:left].astype(np.int64)))
        left -= len(out[-1][0])
        if not left:
            break
    return np.concatenate([a for a, _ in out]), np.concatenate([b for _, b in out])


def key_counts(a: Ints, b: Ints) -> tuple[Ints, Ints, Ints]:
    """The keys that both sides have, and how many tuples of each."""
    (keys_a, in_a), (keys_b, in_b) = (np.unique(side, return_counts=True) for side in (a, b))
    keys, first, second = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    return keys, in_a[first], in_b[second]
