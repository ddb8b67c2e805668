"""Ingest of a session: numbered batches over one call, sent again if it is lost."""

import contextlib
import itertools
import queue
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import grpc
import pyarrow as pa

from promising import wire
from promising.client import batches, calls
from promising.client.connection import Connection, first_of
from promising.client.ingest_feed import Feed
from promising.errors import MixedKeys, NaNKey, WrongType
from promising.index.frames import batches_of, is_reader
from promising.index.ledger import RANDOM_BYTES, check_sender
from promising.index.regions import Appended
from promising.index.schema import Batch
from promising.v1 import streams_pb2

if TYPE_CHECKING:
    from promising.index.table import Changed

Requests = Iterator[streams_pb2.IngestRequest]
OnAck = Callable[[Appended], None] | None


class Ingest:
    """Adds tables to streams; guarantees as for `RemoteSession.ingest`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbering = batches.Numbering(connection.place.sent, secrets.token_hex(RANDOM_BYTES))

    def one(
        self, stream: str, table: Batch, strict: bool, producer: str | None, sequence: int | None, epoch: int
    ) -> Appended:
        """Add a table."""
        check_sender(producer, sequence, epoch)
        if is_reader(table):
            batches.refuse_number(sequence)
            return self.many(stream, batches_of(table), strict, None)
        table = batches.kept(table)
        requests = self._numbering.requests(stream, self._arrow(stream, table), strict, producer, sequence, epoch)
        first = next(requests)
        further = next(requests, None)
        if further is not None:
            return self._send(itertools.chain((first, further), requests), None)
        try:
            return self._send(iter((first,)), None)
        except (WrongType, MixedKeys, NaNKey):
            if isinstance(table, pa.Table | pa.RecordBatch):
                raise
            first.arrow = wire.ipc(self._careful(stream, table))  # usually raises, and names the row
        return self._send(iter((first,)), None)

    def many(self, stream: str, tables: Iterable[Batch], strict: bool, on_ack: OnAck) -> Appended:
        """Add tables over one call."""
        requests = (
            request
            for table in tables
            for request in self._numbering.requests(
                stream, self._arrow(stream, batches.kept(table)), strict, None, None
            )
        )
        return self._send(requests, on_ack)

    def load_table(self, name: str, rows: Batch, mode: str) -> "Changed":
        """Write rows to a reference table, over one call that is never retried."""
        requests = batches.table_requests(name, rows, mode, self._numbering.most)
        connection = self._connection
        return connection.tried(
            lambda: wire.changed_from(
                connection.start(connection.stubs.queries.LoadTable, requests, connection.timeout)
            ),
            again=False,
        )

    def _arrow(self, stream: str, table: Batch) -> pa.Table:
        arrow = self._numbering.quick(table)
        return self._careful(stream, table) if arrow is None else arrow

    def _careful(self, stream: str, table: Batch) -> pa.Table:
        ask = self._connection.ask
        return batches.careful(table, ask(calls.stream_schema(stream)), ask(calls.stream_keys(stream)))

    def _send(self, requests: Requests, on_ack: OnAck) -> Appended:
        feed = Feed()
        tries = 0
        while True:
            before = feed.answered
            try:
                self._feed(feed, requests, on_ack)
                return feed.result()
            except grpc.RpcError as error:
                problem = self._connection.problem(error)
            feed.lost()
            tries = 1 if feed.answered > before else tries + 1
            self._connection.wait(tries, problem)

    def _feed(self, feed: Feed, requests: Requests, on_ack: OnAck) -> None:
        """One call. It ends when every request is answered, or with the call's error."""
        outbox: queue.SimpleQueue[streams_pb2.IngestRequest | None] = queue.SimpleQueue()
        call = self._connection.start(self._connection.stubs.streams.Ingest, iter(outbox.get, None))
        try:
            while True:
                while (unsent := feed.unsent()) is not None or (unsent := _more(feed, requests)) is not None:
                    outbox.put(unsent)
                if not feed.waiting:
                    break
                added = feed.take(first_of(call, "an ingest call"))
                if added is not None and on_ack is not None:
                    on_ack(added)
            outbox.put(None)
            with contextlib.suppress(grpc.RpcError):  # everything is acknowledged, however the call ends
                next(call, None)  # the service also ends it
        finally:
            outbox.put(None)
            call.cancel()


def _more(feed: Feed, requests: Requests) -> streams_pb2.IngestRequest | None:
    """The next batch to send, if there is room. If it cannot be produced, the feed ends, but not batches in flight."""
    if not feed.room:
        return None
    try:
        request = next(requests, None)
    except Exception as problem:
        feed.problem = problem
        return None
    if request is not None:
        feed.add(request)
    return feed.unsent()
