"""Shared state of the services of one server."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promising import wire
from promising.errors import BatchError, LimitReached, PromisingError
from promising.index import Appended
from promising.query.answers import Done
from promising.query.session import Session
from promising.server.metrics import Metrics
from promising.server.open_calls import Calls
from promising.server.worker_threads import Work
from promising.settings import Settings
from promising.v1 import common_pb2

if TYPE_CHECKING:
    from promising.index.prepared_load import Attached
    from promising.server.subscriptions import Subscriber


@dataclass
class Tally:
    """Counters since the start, for metrics and for GetStats."""

    metrics: Metrics
    batches: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    ticks: int = 0
    cpu_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def jobs(self) -> int:
        """Finished batches and queries: while this changes, the service is not idle."""
        return self.batches + self.answered.total()

    def added(self, batches: Sequence[Appended]) -> None:
        """Count batches that were added, or had been before."""
        new = [batch for batch in batches if not batch.duplicate]
        if len(new) < len(batches):
            self.metrics.ingest_batches_total.labels("duplicate").inc(len(batches) - len(new))
        if not new:
            return
        accepted = sum(batch.accepted for batch in new)
        refused: Counter[str] = Counter()
        for batch in new:
            refused.update(batch.refused)
        self.metrics.ingest_batches_total.labels("accepted").inc(len(new))
        self.metrics.ingest_tuples_total.labels("accepted").inc(accepted)
        for reason, count in refused.items():
            self.metrics.ingest_tuples_total.labels(reason).inc(count)
        with self._lock:
            self.batches += len(new)
            self.accepted += accepted
            self.refused.update(refused)

    def attached(self, package: "Attached") -> None:
        """Count a package that was added, or had been before. Tuples dropped when it was built are not included."""
        self.metrics.ingest_batches_total.labels("duplicate" if package.duplicate else "accepted").inc()
        if package.duplicate:
            return
        self.metrics.ingest_tuples_total.labels("accepted").inc(package.accepted)
        with self._lock:
            self.batches += 1
            self.accepted += package.accepted

    def turned_away(self, problem: PromisingError, tuples: int) -> None:
        """Count a refused batch."""
        reason = problem.reason if isinstance(problem, BatchError) else "no_stream"
        self.metrics.ingest_batches_total.labels("refused").inc()
        self.metrics.ingest_tuples_total.labels(reason).inc(tuples)
        with self._lock:
            self.refused[reason] += tuples

    def ended(self, how: str, rows: int, cpu_seconds: float) -> None:
        """Count a finished query: complete, cut, failed or abandoned."""
        self.metrics.queries_total.labels(how).inc()
        self.metrics.query_rows_total.inc(rows)
        self.metrics.query_cpu_seconds_total.inc(cpu_seconds)
        with self._lock:
            self.answered[how] += 1
            self.rows += rows
            self.cpu_seconds += cpu_seconds

    def ticked(self, seconds: float) -> None:
        """Count a tick of the continuous queries."""
        self.metrics.standing_ticks_total.inc()
        self.metrics.standing_tick_seconds.observe(seconds)
        self.ticks += 1


@dataclass
class ServerContext:
    """The session, its worker threads, the open calls, and the settings."""

    settings: Settings
    session: Session
    work: Work
    tally: Tally
    queries: Calls
    ingests: Calls
    subscriptions: Calls
    connections: "set[Subscriber]" = field(default_factory=set)
    drain: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        from promising.server.subscriptions import Ticker  # noqa: PLC0415  # it imports this module

        self.ticker = Ticker(self)

    @property
    def draining(self) -> bool:
        """Whether the service is shutting down."""
        return self.drain.is_set()

    def done(self, sql: str) -> common_pb2.Done:
        """Run a CREATE or DROP."""
        self.check_sql(sql)
        found = self.session.execute(sql)
        assert isinstance(found, Done)
        return wire.done_to(found)

    def keys(self, told: common_pb2.Keys) -> Any:
        """The keys of a request, if within the limit."""
        count = len(told.ints) + len(told.strings)
        most = self.settings.limits.max_keys
        if count > most:
            raise LimitReached(f"{count:,} keys in one question; {most:,} is the most, so split it")
        return wire.keys_from(told)

    def check_sql(self, sql: str) -> None:
        """Refuse a statement that is too long to parse."""
        most = self.settings.limits.max_sql_bytes
        if len(sql.encode()) > most:
            raise LimitReached(f"a statement of {len(sql.encode()):,} bytes; {most:,} is the most")
