"""Prometheus metrics of the service, and their HTTP endpoint."""

import logging
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from promising.errors import BadSettings
from promising.server import logs
from promising.server.metrics_guard import Guard
from promising.settings import address

STORED = {
    "log_bytes_total": "wal_bytes",
    "syncs_total": "wal_syncs",
    "sync_seconds_total": "wal_sync_seconds",
    "checkpoints_total": "checkpoints",
    "checkpoint_seconds_total": "checkpoint_seconds",
    "checkpoint_failures_total": "checkpoint_failures",
    "cold_read_bytes_total": "cold_bytes_read",
    "cache_hits_total": "cold_hits",
    "cache_misses_total": "cold_misses",
    "damages": "damages",
}
"""Metrics of storage, by their names in `Store.stats`."""
TEXT = "text/plain; charset=utf-8"
CONNECTIONS = 64  # at a time, a thread each
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Reading(Collector):
    """A counter maintained elsewhere, read at each scrape."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._said = (name, documentation)
        self._labelnames: tuple[str, ...] = ()
        self._read: Callable[[], float] = float
        registry.register(self)

    def set_function(self, read: Callable[[], float]) -> None:
        """Set the source; before that it is 0."""
        self._read = read

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._said)

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*self._said, value=self._read())


class Metrics:
    """The metrics of one service, in their own registry. Attributes are named as their metrics, without the prefix.

    No label takes a value chosen by a caller, so the number of series is bounded.
    """

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.rpcs_total = Counter(
            "promising_rpcs_total", "Finished calls by method and status code.", ["method", "code"], registry=own
        )
        self.rpc_seconds = Histogram(
            "promising_rpc_seconds", "Duration of calls.", ["method"], buckets=SECONDS, registry=own
        )
        self.ingest_tuples_total = Counter(
            "promising_ingest_tuples_total", "Tuples, accepted or rejected by reason.", ["outcome"], registry=own
        )
        self.ingest_batches_total = Counter(
            "promising_ingest_batches_total", "Batches, accepted, duplicate or refused.", ["outcome"], registry=own
        )
        self.queries_total = Counter("promising_queries_total", "Finished queries by outcome.", ["ended"], registry=own)
        self.query_cpu_seconds_total = Counter(
            "promising_query_cpu_seconds_total", "CPU time of queries.", registry=own
        )
        self.query_rows_total = Counter("promising_query_rows_total", "Rows sent.", registry=own)
        self.queries_open = Gauge("promising_queries_open", "Running queries.", registry=own)
        self.ingest_streams_open = Gauge("promising_ingest_streams_open", "Open Ingest calls.", registry=own)
        self.tuples = Gauge("promising_tuples", "Retained tuples.", registry=own)
        self.bytes = Gauge("promising_bytes", "Memory of tuples and summaries.", ["kind"], registry=own)
        self.streams = Gauge("promising_streams", "Streams.", registry=own)
        self.summaries = Gauge("promising_summaries", "Summaries.", registry=own)
        self.standing_queries = Gauge("promising_standing_queries", "Continuous queries.", registry=own)
        self.standing_ticks_total = Counter(
            "promising_standing_ticks_total", "Updates of continuous queries.", registry=own
        )
        self.standing_tick_seconds = Histogram(
            "promising_standing_tick_seconds", "Duration of updates.", buckets=SECONDS, registry=own
        )
        self.standing_lag_seconds = Gauge(
            "promising_standing_lag_seconds",
            "Maximum lag of a view behind arrived tuples.",
            registry=own,
        )
        self.standing_view_rows = Gauge("promising_standing_view_rows", "Rows of all views.", registry=own)
        self.standing_state_bytes = Gauge(
            "promising_standing_state_bytes", "Memory of views and operator state.", registry=own
        )
        self.standing_shed_results = Gauge(
            "promising_standing_shed_results",
            "Expected results shed for lack of CPU time.",
            registry=own,
        )
        self.subscribers = Gauge("promising_subscribers", "Open Subscribe calls.", registry=own)
        self.subscriptions = Gauge("promising_subscriptions", "Subscriptions of all these calls.", registry=own)
        self.draining = Gauge("promising_draining", "1 during shutdown, when no new calls are accepted.", registry=own)
        self.storage_log_bytes_total = Reading("promising_storage_log_bytes_total", "Bytes written to the log.", own)
        self.storage_syncs_total = Reading("promising_storage_syncs_total", "Syncs of the log.", own)
        self.storage_sync_seconds_total = Reading(
            "promising_storage_sync_seconds_total", "Total duration of syncs.", own
        )
        self.storage_checkpoints_total = Reading("promising_storage_checkpoints_total", "Checkpoints.", own)
        self.storage_checkpoint_seconds_total = Reading(
            "promising_storage_checkpoint_seconds_total", "Total duration of checkpoints.", own
        )
        self.storage_checkpoint_failures_total = Reading(
            "promising_storage_checkpoint_failures_total", "Failed checkpoints.", own
        )
        self.storage_cold_read_bytes_total = Reading(
            "promising_storage_cold_read_bytes_total", "Bytes of cold tuples read.", own
        )
        self.storage_cache_hits_total = Reading(
            "promising_storage_cache_hits_total", "Cold reads served from the cache.", own
        )
        self.storage_cache_misses_total = Reading(
            "promising_storage_cache_misses_total", "Cold reads from disk or object store.", own
        )
        self.storage_damages = Gauge("promising_storage_damages", "Unrepaired damages.", registry=own)
        ProcessCollector(registry=own)

    def stored(self) -> "Iterator[tuple[Reading | Gauge, str]]":
        """The metrics of the store, each with its name there."""
        for name, there in STORED.items():
            yield getattr(self, f"storage_{name}"), there

    def endpoint(self, listen: str, ready: Callable[[], bool], guard: Guard | None = None) -> "Endpoint":
        """Serve /metrics, /-/ready (200 or 503) and /-/healthy over HTTP until stopped. guard: of /metrics."""
        return Endpoint(self.registry, listen, ready, guard)


class Endpoint:
    """A running HTTP server in its own threads, on `port`."""

    def __init__(
        self, registry: CollectorRegistry, listen: str, ready: Callable[[], bool], guard: Guard | None
    ) -> None:
        host, port = address(listen)
        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry)),
            "/-/healthy": lambda: (200, TEXT, b"healthy\n"),
            "/-/ready": lambda: (200, TEXT, b"ready\n") if ready() else (503, TEXT, b"not ready\n"),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds that an idle client may occupy a thread

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                page = pages.get(path)
                if page is None:
                    status, kind, body = 404, TEXT, f"there are {', '.join(pages)}\n".encode()
                elif path == "/metrics" and guard is not None and (refused := self._refused(guard)):
                    status, kind, body = refused
                else:
                    status, kind, body = page()
                self.send_response(status)
                if status == 401:
                    self.send_header("WWW-Authenticate", "Bearer")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _refused(self, guard: Guard) -> tuple[int, str, bytes] | None:
                shown = isinstance(self.connection, ssl.SSLSocket) and bool(self.connection.getpeercert())
                try:
                    if guard.allows(self.headers.get("Authorization"), shown):
                        return None
                except BadSettings:
                    return 503, TEXT, b"the service cannot read its tokens now; its log says why\n"
                return 401, TEXT, b"send a token of this service: Authorization: Bearer <token>\n"

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: scrapes are frequent."""

        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), Handler)
            self._server.tls = None if guard is None else guard.tls
        except OSError as problem:
            raise BadSettings(f"metrics_listen: {listen}: {problem.strerror or problem}") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and release the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._room = threading.Semaphore(CONNECTIONS)

    def get_request(self) -> tuple[Any, Any]:
        """The handshake is left to the thread of the connection."""
        connection, peer = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; one too many is closed."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_bind(self) -> None:
        """Skips the base class's look-up of the host name, which takes seconds without a name service."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a failed request; the base class would print it."""
        problem = sys.exception()
        if problem is not None and not isinstance(problem, OSError):  # those are disconnected clients
            logs.event("fault", level=logging.ERROR, error=type(problem).__name__, frames=logs.frames(problem))


class _Server6(_Server):
    address_family = socket.AF_INET6
