"""AdminService: version, settings and status of the service."""

import platform
import resource
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from promising import wire, wire_changes, wire_times
from promising.server import access
from promising.server.context import ServerContext
from promising.settings import shown
from promising.v1 import admin_pb2, admin_pb2_grpc

Context = Any  # grpc.aio.ServicerContext, whose stubs are not generic
FRESH = 0.5  # seconds for which figures of continuous queries are cached


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Calls for operators."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._started = time.time()

    async def GetVersion(self, request: admin_pb2.GetVersionRequest, context: Context) -> admin_pb2.GetVersionResponse:
        return admin_pb2.GetVersionResponse(version=version("promising-tuples"), python=platform.python_version())

    async def GetConfig(self, request: admin_pb2.GetConfigRequest, context: Context) -> admin_pb2.GetConfigResponse:
        return admin_pb2.GetConfigResponse(settings=shown(self._parts.settings))

    async def GetStats(self, request: admin_pb2.GetStatsRequest, context: Context) -> admin_pb2.GetStatsResponse:
        told = await self._parts.work.call(self._stats)
        if self._parts.settings.data is not None and access.caller().may("admin"):
            told.data = str(self._parts.settings.data)
        return told

    def _stats(self) -> admin_pb2.GetStatsResponse:
        held = holdings(self._parts)
        tally = self._parts.tally
        used = resource.getrusage(resource.RUSAGE_SELF)
        store = self._parts.session.store
        told = admin_pb2.GetStatsResponse(
            started=wire_times.timestamp(round(self._started * wire_times.SECOND)),
            uptime=wire_times.duration(time.time() - self._started),
            cpu_seconds=used.ru_utime + used.ru_stime,
            resident_bytes=resident_bytes(),
            streams=held["streams"],
            summaries=held["summaries"],
            tuples=held["tuples"],
            bytes=held["tuple_bytes"] + held["summary_bytes"],
            batches=tally.batches,
            accepted=tally.accepted,
            refused=dict(tally.refused),
            ingesting=len(self._parts.ingests),
            queries=len(self._parts.queries),
            answered=dict(tally.answered),
            rows=tally.rows,
            query_cpu_seconds=tally.cpu_seconds,
            draining=self._parts.draining,
            durable=store is not None,
            standing=len(self._parts.session.catalog.queries),
            subscriptions=subscriptions(self._parts),
            ticks=tally.ticks,
            query_bytes=held["query_bytes"],
            damages=[
                admin_pb2.Damage(stream=stream, what=what)
                for stream, found in (store.damages.items() if store is not None else ())
                for what in found
            ]
            + [
                admin_pb2.Damage(table=table, what=what)
                for table, what in (store.set_aside.items() if store is not None else ())
            ],
        )
        if store is not None and store.checkpointed is not None:
            told.checkpoint.CopyFrom(wire_times.timestamp(round(store.checkpointed * wire_times.SECOND)))
        return told

    async def ListQueries(
        self, request: admin_pb2.ListQueriesRequest, context: Context
    ) -> admin_pb2.ListQueriesResponse:
        response = admin_pb2.ListQueriesResponse()
        for call in self._parts.queries:
            told = response.queries.add(
                query_id=call.id,
                client=call.caller.name,
                started=wire_times.timestamp(round(call.started * wire_times.SECOND)),
                streams=() if call.answer is None else call.answer.reads,
                waiting=call.waiting is not None,
            )
            if call.progress is not None:
                told.progress.CopyFrom(wire.progress_to(replace(call.progress, token=None)))
        return response

    async def ListStanding(
        self, request: admin_pb2.ListStandingRequest, context: Context
    ) -> admin_pb2.ListStandingResponse:
        return await self._parts.work.call(self._standing)

    def _standing(self) -> admin_pb2.ListStandingResponse:
        response = admin_pb2.ListStandingResponse()
        for found in self._parts.session.standing.status():
            told = response.queries.add(
                name=found.name,
                lag=wire_times.duration_of(found.lag),
                view_rows=found.size,
                bytes=found.bytes,
                came=found.came,
                went=found.went,
                late=found.late,
                shed=found.shed,
                cpu_seconds=found.cpu_seconds,
                subscribers=found.subscribers,
                label=found.label,
                store=found.store,
                mode=found.mode,
                failure=found.problem or "",
            )
            if found.watermark > wire_changes.BEGINNING and not found.problem:
                told.watermark.CopyFrom(wire_times.shown(found.watermark))
            if found.budget is not None:
                told.budget.CopyFrom(wire_times.duration(found.budget))
        return response


def subscriptions(parts: ServerContext) -> int:
    """Queries of all Subscribe calls together."""
    return sum(len(connection) for connection in list(parts.connections))


class StandingGauges:
    """Figures of all continuous queries together, cached for concurrent readers."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._seen: dict[str, float] = {}
        self._when = 0.0

    def __call__(self, name: str) -> float:
        """A figure."""
        now = time.monotonic()
        if not self._seen or now - self._when > FRESH:
            found = self._parts.session.standing.status()
            self._seen = {
                "lag_seconds": max((status.lag for status in found), default=0) / wire_times.SECOND,
                "view_rows": float(sum(status.size for status in found)),
                "state_bytes": float(self._parts.session.standing.nbytes),
                "shed_results": float(sum(status.shed for status in found)),
            }
            self._when = now
        return self._seen[name]


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def holdings(parts: ServerContext) -> dict[str, int]:
    """Totals of the session: streams, summaries, tuples, and their bytes and those of queries."""
    catalog = parts.session.catalog
    with catalog.lock:
        streams = list(catalog.streams.values())
        summaries = [entry.index for entry in catalog.summaries.values()]
    return {
        "streams": len(streams),
        "summaries": len(summaries),
        "tuples": sum(s.kept for s in streams),
        "tuple_bytes": sum(s.nbytes for s in streams),
        "summary_bytes": sum(s.state.nbytes for s in summaries),
        "query_bytes": parts.session.query_bytes,
    }


def stored(parts: ServerContext, name: str) -> float:
    """A figure of the store; 0 if it does not exist."""
    store = parts.session.store
    return 0.0 if store is None else float(store.stats()[name])
