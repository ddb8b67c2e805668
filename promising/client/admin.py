"""A service's own status: version, settings, counters, and running queries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promising import wire_times
from promising.client.connection import Ask
from promising.v1 import admin_pb2

if TYPE_CHECKING:
    from promising.query.answers import Progress


@dataclass(frozen=True)
class Version:
    """Versions of promising and of Python."""

    version: str
    python: str


@dataclass(frozen=True)
class Stats:
    """Counters since the service started, and current sizes.

    `refused` counts tuples by reason, `answered` queries by outcome; `damages` lists unreadable parts of streams, and
    tables that cannot be used, by name.
    `data` is the data directory, for the role admin. Times are in microseconds since the epoch, the uptime in
    microseconds.
    """

    started: int
    uptime: int
    cpu_seconds: float
    resident_bytes: int
    streams: int
    summaries: int
    tuples: int
    bytes: int
    batches: int
    accepted: int
    refused: dict[str, int]
    ingesting: int
    queries: int
    answered: dict[str, int]
    rows: int
    query_cpu_seconds: float
    draining: bool
    durable: bool
    data: str
    checkpoint: int | None
    damages: dict[str, list[str]]
    standing: int = 0
    subscriptions: int = 0
    ticks: int = 0


@dataclass(frozen=True)
class StandingQuery:
    """Status of a continuous query: counters since the service started, and current sizes.

    `watermark` is the event time of its view, in microseconds since the epoch, None before the first tuple; `lag` is
    how far that is behind the arrived tuples, in microseconds. `came` and `went` count rows inserted into and retracted
    from the view, `late` tuples that had expired on arrival, `shed` expected results that were dropped. `budget` is CPU
    seconds per second, None without a limit. `failure` is why it has stopped; empty while it runs.
    """

    name: str
    watermark: int | None
    lag: int
    view_rows: int
    bytes: int
    came: int
    went: int
    late: int
    shed: float
    cpu_seconds: float
    budget: float | None
    subscribers: int
    label: str
    store: str
    mode: str
    failure: str


@dataclass(frozen=True)
class RunningQuery:
    """A running query. Before its first frame there is no progress; `waiting`: for its consumer."""

    query_id: str
    client: str
    started: int
    progress: "Progress | None"
    streams: tuple[str, ...]
    waiting: bool


class Admin:
    """The part of a session that queries the service's status. Settings and queries need the role admin."""

    def __init__(self, ask: Callable[[Ask[Any]], Any]) -> None:
        self._ask = ask

    def version(self) -> Version:
        """The versions."""
        told = self._ask(Ask("admin", "GetVersion", admin_pb2.GetVersionRequest(), lambda told: told))
        return Version(told.version, told.python)

    def config(self) -> dict[str, str]:
        """The settings in force, by name, without secrets."""
        told = self._ask(Ask("admin", "GetConfig", admin_pb2.GetConfigRequest(), lambda told: told))
        return dict(sorted(told.settings.items()))

    def stats(self) -> Stats:
        """Counters and sizes."""
        told = self._ask(Ask("admin", "GetStats", admin_pb2.GetStatsRequest(), lambda told: told))
        damages: dict[str, list[str]] = {}
        for damage in told.damages:
            damages.setdefault(damage.stream or damage.table, []).append(damage.what)
        return Stats(
            started=told.started.ToMicroseconds(),
            uptime=told.uptime.ToMicroseconds(),
            cpu_seconds=told.cpu_seconds,
            resident_bytes=told.resident_bytes,
            streams=told.streams,
            summaries=told.summaries,
            tuples=told.tuples,
            bytes=told.bytes,
            batches=told.batches,
            accepted=told.accepted,
            refused=dict(sorted(told.refused.items())),
            ingesting=told.ingesting,
            queries=told.queries,
            answered=dict(sorted(told.answered.items())),
            rows=told.rows,
            query_cpu_seconds=told.query_cpu_seconds,
            draining=told.draining,
            durable=told.durable,
            data=told.data,
            checkpoint=told.checkpoint.ToMicroseconds() if told.HasField("checkpoint") else None,
            damages=damages,
            standing=told.standing,
            subscriptions=told.subscriptions,
            ticks=told.ticks,
        )

    def standing(self) -> list[StandingQuery]:
        """Continuous queries, by name. Needs the role query."""
        told = self._ask(Ask("admin", "ListStanding", admin_pb2.ListStandingRequest(), lambda told: told))
        return [
            StandingQuery(
                name=query.name,
                watermark=wire_times.micros(query.watermark) if query.HasField("watermark") else None,
                lag=wire_times.span_micros(query.lag),
                view_rows=query.view_rows,
                bytes=query.bytes,
                came=query.came,
                went=query.went,
                late=query.late,
                shed=query.shed,
                cpu_seconds=query.cpu_seconds,
                budget=wire_times.seconds(query.budget) if query.HasField("budget") else None,
                subscribers=query.subscribers,
                label=query.label,
                store=query.store,
                mode=query.mode,
                failure=query.failure,
            )
            for query in told.queries
        ]

    def queries(self) -> list[RunningQuery]:
        """Running queries, the oldest first."""
        from promising import wire  # noqa: PLC0415  # Arrow: not needed for counters

        told = self._ask(Ask("admin", "ListQueries", admin_pb2.ListQueriesRequest(), lambda told: told))
        return [
            RunningQuery(
                query.query_id,
                query.client,
                query.started.ToMicroseconds(),
                wire.progress_from(query.progress) if query.HasField("progress") else None,
                tuple(query.streams),
                query.waiting,
            )
            for query in told.queries
        ]
