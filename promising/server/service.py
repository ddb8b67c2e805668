"""The server: its parts, start, and lossless shutdown."""

import asyncio
import contextlib
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from promising.errors import BadSettings
from promising.loaders.spark_sql import spark_sql
from promising.query.session import Session
from promising.server import logs, memory, reflection, store_lifecycle, supervisor
from promising.server.access import AccessInterceptor
from promising.server.admin import AdminService, StandingGauges, holdings, resident_bytes, stored, subscriptions
from promising.server.authentication import Authentication
from promising.server.context import ServerContext, Tally
from promising.server.metrics import Endpoint, Metrics
from promising.server.metrics_guard import guard_of
from promising.server.open_calls import Calls
from promising.server.queries import QueryService
from promising.server.query_limits import query_limits
from promising.server.starting import SIGNALS, Ended, end_at_once
from promising.server.streams import StreamService
from promising.server.summaries import SummaryService
from promising.server.tls import server_credentials
from promising.server.worker_threads import Work
from promising.settings import Settings, address, check_safe
from promising.v1 import admin_pb2_grpc, queries_pb2_grpc, streams_pb2_grpc, summaries_pb2_grpc
from promising.warmup import every_kernel, load_all

SERVICES = tuple(f"promising.v1.{name}" for name in ("StreamService", "SummaryService", "QueryService", "AdminService"))
TICK = 0.25  # seconds between two checks for slow consumers
KEEPALIVE = 30_000  # milliseconds of silence before a keepalive ping
HANDSHAKE = 20_000  # milliseconds for the HTTP/2 handshake
LOOK = 0.05  # seconds between two checks for open calls at shutdown
PENDING = 1 << 16  # calls of a connection, and calls that wait to be looked at
LAST_FRAMES = 2.0  # seconds of the drain, half of it at most, for the last frames of queries


class Service:
    """One server with its session. `start` and `stop` it in the same event loop.

    session: served, and left open at the end. None creates one over the configured directory, opened at the start and
        closed at the end, or in memory.
    """

    def __init__(self, settings: Settings, session: Session | None = None) -> None:
        check_safe(settings)
        self.settings = settings
        seed = None if settings.seed is None else settings.seed.get_secret_value()
        self.session = (
            Session(
                seed=seed,
                written=spark_sql,
                memory_bytes=store_lifecycle.memory_bytes(settings),
                query_limits=query_limits(settings),
                max_sql_tokens=settings.limits.max_sql_tokens,
            )
            if session is None
            else session
        )
        self._keeps = session is None and settings.data is not None
        self.metrics = Metrics()
        limits = settings.limits
        patience = limits.slow_reader_seconds
        self._parts = ServerContext(
            settings,
            self.session,
            Work(limits.workers),
            Tally(self.metrics),
            Calls("queries", limits.max_queries, limits.max_queries_per_client, patience),
            Calls("ingest calls", limits.max_queries, limits.max_ingest_streams_per_client, patience),
            Calls("subscriptions", limits.max_subscriptions, limits.max_subscriptions_per_client, patience),
        )
        self._watches = Calls("health watches", limits.max_watches, limits.max_watches_per_client, patience)
        self._authentication: Authentication | None = None
        # It exists, but under a condition that mypy does not follow.
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._access: AccessInterceptor | None = None
        self._server: grpc.aio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ticks: asyncio.Task[None] | None = None
        self._endpoint: Endpoint | None = None
        self._ready = False
        self.port = 0
        self._measure()

    def _measure(self) -> None:
        """Connect gauges, which are read at each scrape."""
        parts, metrics = self._parts, self.metrics

        def held(name: str) -> Callable[[], float]:
            return lambda: float(holdings(parts)[name])

        metrics.queries_open.set_function(lambda: len(parts.queries))
        metrics.ingest_streams_open.set_function(lambda: len(parts.ingests))
        metrics.draining.set_function(lambda: float(parts.draining))
        for gauge, name in ((metrics.streams, "streams"), (metrics.summaries, "summaries"), (metrics.tuples, "tuples")):
            gauge.set_function(held(name))
        for kind, name in (("tuples", "tuple_bytes"), ("summaries", "summary_bytes"), ("queries", "query_bytes")):
            metrics.bytes.labels(kind).set_function(held(name))
        gauges = StandingGauges(parts)
        metrics.standing_queries.set_function(lambda: len(parts.session.catalog.queries))
        metrics.subscribers.set_function(lambda: len(parts.subscriptions))
        metrics.subscriptions.set_function(lambda: subscriptions(parts))
        for gauge, name in (
            (metrics.standing_lag_seconds, "lag_seconds"),
            (metrics.standing_view_rows, "view_rows"),
            (metrics.standing_state_bytes, "state_bytes"),
            (metrics.standing_shed_results, "shed_results"),
        ):
            gauge.set_function(partial(gauges, name))
        for metric, name in metrics.stored():
            metric.set_function(partial(stored, parts, name))

    async def start(self, ending: threading.Event | None = None) -> int:
        """Open the data and accept calls; returns the port. If it fails, everything is released.

        ending: may be set by then, which raises Ended at the next safe point.
        """
        try:
            await self._start(threading.Event() if ending is None else ending)
        except BaseException:
            await self._let_go()
            raise
        return self.port

    async def _start(self, ending: threading.Event) -> None:
        settings = self.settings
        credentials = server_credentials(settings)
        authentication = self._authentication = Authentication(settings)
        if settings.metrics_listen is not None:
            self._endpoint = self.metrics.endpoint(
                settings.metrics_listen,
                lambda: self._ready and not self._parts.draining,
                guard_of(settings, authentication),
            )
        access = self._access = AccessInterceptor(
            authentication, self.metrics, self._watches, settings.limits.max_calls
        )
        if self._keeps:
            self.session = self._parts.session = await store_lifecycle.opened(settings, ending)
        if ending.is_set():
            raise Ended
        server = self._server = grpc.aio.server(interceptors=(access,), options=self._options())
        streams_pb2_grpc.add_StreamServiceServicer_to_server(StreamService(self._parts), server)
        summaries_pb2_grpc.add_SummaryServiceServicer_to_server(SummaryService(self._parts), server)
        queries_pb2_grpc.add_QueryServiceServicer_to_server(QueryService(self._parts), server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(self._parts), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if settings.reflection:
            reflection.add((*SERVICES, health.SERVICE_NAME), server)
        try:
            if credentials is None:
                self.port = server.add_insecure_port(settings.listen)
            else:
                self.port = server.add_secure_port(settings.listen, credentials)
        except RuntimeError:
            raise BadSettings(f"listen: {settings.listen} is taken, or no address of this machine") from None
        await server.start()
        await self._serving(True)
        self._watch = asyncio.create_task(self._watching())
        self._ticks = asyncio.create_task(self._parts.ticker.run())
        self._ready = True

    def _options(self) -> list[tuple[str, int]]:
        limits = self.settings.limits
        return [
            ("grpc.max_receive_message_length", limits.max_message_bytes),
            ("grpc.max_send_message_length", -1),  # our own messages are split to size, and never refused
            ("grpc.max_metadata_size", 16 << 10),
            # gRPC refuses what is beyond these without a reason or a delay: the interceptor refuses before.
            ("grpc.max_concurrent_streams", PENDING),
            ("grpc.server.max_pending_requests", PENDING),
            ("grpc.server.max_pending_requests_hard_limit", PENDING),
            ("grpc.server_max_unrequested_time_in_server", int(limits.max_deadline_seconds)),
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE),
            ("grpc.keepalive_time_ms", KEEPALIVE),
            ("grpc.keepalive_timeout_ms", KEEPALIVE // 3),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE // 3),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.so_reuseport", 0),
        ]

    async def _serving(self, well: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if well else health_pb2.HealthCheckResponse.NOT_SERVING
        await asyncio.gather(*(self._health.set(name, status) for name in ("", *SERVICES)))

    async def _watching(self) -> None:
        """Disconnect slow consumers. End calls with a revoked token. Return memory when idle."""
        parts = self._parts
        done, since, kept, unread = parts.tally.jobs, time.monotonic(), 0, 0
        while True:
            await asyncio.sleep(TICK)
            for calls in (parts.queries, parts.ingests, parts.subscriptions):
                if cut := calls.cut_slow():
                    logs.event("slow_readers_cut", calls=cut)
            await parts.work.call(parts.session.tidy)
            if self._access is not None and (ended := self._access.end_revoked()):
                logs.event("revoked", calls=ended)
            if (still := self._unread()) < unread:  # what waited for disconnected clients is free now
                since, kept = time.monotonic(), 0
            unread = still
            if parts.tally.jobs != done or len(parts.queries) or len(parts.ingests):
                done, since = parts.tally.jobs, time.monotonic()
            elif time.monotonic() - since > memory.IDLE and resident_bytes() > memory.WORTH * kept:
                await parts.work.call(memory.collect)
                await parts.work.everywhere(memory.give_back_arrow)
                memory.give_back_arrow()  # of this thread, which serialises frames
                await parts.work.call(memory.trim)
                since, kept = time.monotonic(), resident_bytes()

    def _busy(self) -> bool:
        """Whether any call is open, except those ended for a slow consumer or with their token."""
        access = self._access
        return bool(
            self._parts.work.busy or (access is not None and access.under_way > self._unread() + access.revoked)
        )

    def _unread(self) -> int:
        """Ended calls that still wait for their consumer to read."""
        parts = self._parts
        return sum(call.slow for calls in (parts.queries, parts.ingests, parts.subscriptions) for call in calls)

    async def _quiet(self, until: float) -> None:
        """Wait until no call is open, up to `until`."""
        while self._busy() and time.monotonic() < until:
            await asyncio.sleep(LOOK)

    async def stop(self, grace: float = 0.0) -> None:
        """Refuse new calls, let open ones run for `grace` seconds, then end them.

        Ingest calls end at once, or after the current batch. Queries still running near the end send their last frame
        with a token. Health watchers are not awaited. Connections are closed last: closing one while the client still
        sends would lose the last response.
        """
        if self._server is None:
            return
        self._parts.drain.set()
        if self._access is not None:
            self._access.closed = True
        with contextlib.suppress(TimeoutError):  # there may be watchers that do not read
            async with asyncio.timeout(LAST_FRAMES):
                await self._serving(False)
                await asyncio.sleep(0)  # watchers wake up,
                await self._serving(False)  # and this follows their notification
        end = time.monotonic() + grace
        await self._quiet(end - min(LAST_FRAMES, grace / 2))
        for call in self._parts.queries if grace else ():
            call.end()
        await self._quiet(end)
        under_way = self._access.close_watchers() if self._access is not None else 0
        # Closing with a grace period waits for each client's acknowledgement; disconnected ones would never send it.
        await self._server.stop(None if under_way else min(LAST_FRAMES, grace) or None)
        await self._let_go()

    async def _let_go(self) -> None:
        """Release everything around the server, the data last, when nothing uses it."""
        for task in (self._watch, self._ticks):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.stop)
        await asyncio.to_thread(self._parts.work.close)
        if self._authentication is not None:
            self._authentication.close()
        if self._keeps and self.session.store is not None:
            await store_lifecycle.closed(self.session)
        self._server = self._endpoint = self._watch = self._ticks = self._access = self._authentication = None


def serve(settings: Settings, ready: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain. `ready` is called with the port when calls are accepted."""
    logs.setup(settings.log_level, sys.stderr)
    end_at_once()
    try:
        if missing := sum(not kernel.stored for kernel in every_kernel()):
            logs.event("compiling", kernels=missing)
        load_all()  # no call waits for a kernel
        asyncio.run(_serve(settings, ready))
    except (Ended, SystemExit):
        logs.event("stopped")


async def _serve(settings: Settings, ready: Callable[[int], None] | None) -> None:
    _raise_file_limit(settings)
    ended, ending = asyncio.Event(), threading.Event()

    def end() -> None:
        ended.set()
        ending.set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, end)
    service = Service(settings)
    port = await service.start(ending)
    memory.keep_loaded()
    host, _ = address(settings.listen)
    logs.event(
        "started",
        listen=f"{host}:{port}",
        tls=settings.tls.certificate is not None,
        data=None if settings.data is None else str(settings.data),
    )
    supervisor.ready()
    if ready is not None:
        ready(port)
    await ended.wait()
    logs.event("draining", seconds=settings.drain_seconds)
    supervisor.stopping(settings.drain_seconds)
    await service.stop(settings.drain_seconds)
    logs.event("stopped")


def _raise_file_limit(settings: Settings) -> None:
    """Raise the limit of open files to the allowed connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.limits.max_connections + 1024
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
