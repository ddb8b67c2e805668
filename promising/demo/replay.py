"""The retail log in two streams, by parity of the store number: the past is bulk loaded, the rest replayed."""

import threading
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

STORES = {"even": 0, "odd": 1}
"""Streams, and their store numbers modulo 2."""
CREATE = (
    """
    CREATE STREAM {0} (
      StoreID INT, TransactionID BIGINT, TimeStamp TIMESTAMP, ItemID BIGINT, Price DOUBLE
    ) TIMESTAMP BY TimeStamp LATENESS 1 DAY
    """,
    """
    CREATE SUMMARY {0}_items ON {0} (ItemID)
      WITH GRANULARITY 7 DAYS AND COLLAPSE (4, 4) OPTIONS (tolerance = 1.5)
    """,
)
LIVE_FROM = int(datetime(2017, 12, 1, tzinfo=UTC).timestamp() * 1e6)
BATCH = 1 << 13  # rows: less than a week of a stream, so that they arrive in time for the zones of G_1
STEP = 3 * 3_600_000_000  # of event time, sent at a time
PACE = 24  # steps a second: December takes some ten seconds


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


class Replay(threading.Thread):
    """Sends the rest of the log, `STEP` by `STEP` of event time, `PACE` steps a second, while queries run.

    `rows`: number sent; `now`: event time reached. `finish` waits for the end, and raises errors.
    """

    def __init__(self, session: RemoteSession, parts: LogParts) -> None:
        super().__init__(name="replay", daemon=True)
        self.rows = 0
        self.now = parts.time(parts.past - 1)
        self.seconds = 0.0
        self._session, self._parts = session, parts
        self.total = parts.live
        self._stop_asked = threading.Event()
        self._problem: BaseException | None = None

    def run(self) -> None:
        began = time.perf_counter()
        try:
            for number, step in enumerate(self._steps()):
                for name, rest in STORES.items():
                    mine = of_stores(step, rest)
                    if mine.num_rows:
                        self._session.ingest(name, mine)
                self.rows += step.num_rows
                self.now = int(step[journey.TIME][-1].value)
                if self._stop_asked.wait(max(0.0, began + (number + 1) / PACE - time.perf_counter())):
                    return
        except Exception as problem:
            self._problem = problem
        finally:
            self.seconds = time.perf_counter() - began

    def _steps(self) -> Iterator[pa.Table]:
        live = self._parts.log.slice(self._parts.past)
        steps = pc.cast(live[journey.TIME], pa.int64()).to_numpy() // STEP
        if not len(steps):
            return
        edges = np.flatnonzero(steps[1:] != steps[:-1]) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(steps)]):
            yield live.slice(start, stop - start)

    def finish(self) -> None:
        """Wait until all has been sent."""
        while self.is_alive():
            self.join(0.1)  # so that Ctrl-C is handled
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End it after the current step."""
        self._stop_asked.set()
        if self.is_alive():
            self.join()
