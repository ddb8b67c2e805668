"""The retail log in two streams, by parity of the store number: the past is loaded, the rest replayed day by day."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promising.client import RemoteSession
from promising.demo import journey
from promising.index.time_text import UNITS

STORES = {"even": 0, "odd": 1}
"""Streams, and their store numbers modulo 2."""
CREATE = (
    """
    CREATE STREAM {0} (
      StoreID INT, TransactionID BIGINT, TimeStamp TIMESTAMP, ItemID BIGINT, Price DOUBLE, KindID BIGINT
    ) TIMESTAMP BY TimeStamp LATENESS 1 DAY
    """,
    """
    CREATE SUMMARY {0}_kinds ON {0} (KindID)
      WITH GRANULARITY 7 DAYS AND COLLAPSE (4, 4) OPTIONS (tolerance = 1.5)
    """,
)
LIVE_FROM = int(datetime(2017, 12, 1, tzinfo=UTC).timestamp() * 1e6)
BATCH = 1 << 13  # rows: less than a week of a stream, so that they arrive in time for the zones of G_1


@dataclass(frozen=True)
class LogParts:
    """The log, and how many of its rows are the past."""

    log: pa.Table
    past: int

    @classmethod
    def of(cls, log: pa.Table) -> "LogParts":
        """Rows before December are the past; in a shorter log, eleven of twelve rows."""
        before = pc.sum(pc.less(log[journey.TIME], pa.scalar(LIVE_FROM, pa.timestamp("us")))).as_py()
        return cls(log, before if before < log.num_rows else max(log.num_rows * 11 // 12, 1))

    @property
    def live(self) -> int:
        return int(self.log.num_rows) - self.past

    def time(self, row: int) -> int:
        """Event time of a row; the log is in order."""
        time: int = self.log[journey.TIME][row].value
        return time

    def days(self) -> Iterator[pa.Table]:
        """The rest, one table per day of event time."""
        live = self.log.slice(self.past)
        days = pc.cast(live[journey.TIME], pa.int64()).to_numpy() // UNITS["day"]
        if not len(days):
            return
        edges = np.flatnonzero(days[1:] != days[:-1]) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(days)]):
            yield live.slice(start, stop - start)


def of_stores(table: pa.Table, rest: int) -> pa.Table:
    """The rows of the stores with even or odd numbers."""
    return table.filter(pc.equal(pc.bit_wise_and(table["StoreID"], 1), rest))


def create(session: RemoteSession) -> None:
    """Create both streams, each with its summary."""
    for name in STORES:
        for statement in CREATE:
            session.execute(statement.format(name))


def load(session: RemoteSession, parts: LogParts, advance: Callable[[int], None]) -> float:
    """Send the past, several batches in flight; returns the seconds."""
    began = time.perf_counter()
    past = parts.log.slice(0, parts.past)
    for name, rest in STORES.items():
        mine = of_stores(past, rest)
        batches = (mine.slice(start, BATCH) for start in range(0, mine.num_rows, BATCH))
        session.ingest_many(name, batches, on_ack=lambda added: advance(added.accepted))
    return time.perf_counter() - began


def send(session: RemoteSession, day: pa.Table) -> None:
    """Send one day, to both streams."""
    for name, rest in STORES.items():
        mine = of_stores(day, rest)
        if mine.num_rows:
            session.ingest(name, mine)
