"""Ingest of an asyncio session: `Ingest` as coroutines."""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import pyarrow as pa

from promising import wire, wire_errors
from promising.client import batches, calls
from promising.client.async_connection import AsyncConnection, first_of
from promising.client.ingest import OnAck
from promising.client.ingest_feed import Feed
from promising.errors import MixedKeys, NaNKey, PromisingError, Unavailable, WrongType
from promising.index.frames import batches_of, is_reader
from promising.index.ledger import RANDOM_BYTES, check_sender
from promising.index.regions import Appended
from promising.index.schema import Batch
from promising.v1 import streams_pb2

if TYPE_CHECKING:
    from promising.index.table import Changed

T = TypeVar("T")
Requests = AsyncIterator[streams_pb2.IngestRequest]


class AsyncIngest:
    """Adds tables to streams; guarantees as for `RemoteSession.ingest`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._numbering = batches.Numbering(connection.place.sent, secrets.token_hex(RANDOM_BYTES))

    async def one(
        self, stream: str, table: Batch, strict: bool, producer: str | None, sequence: int | None, epoch: int
    ) -> Appended:
        """Add a table."""
        check_sender(producer, sequence, epoch)
        if is_reader(table):
            batches.refuse_number(sequence)
            return await self.many(stream, batches_of(table), strict, None)
        table = batches.kept(table)
        requests = self._numbering.requests(stream, await self._arrow(stream, table), strict, producer, sequence, epoch)
        first = next(requests)
        further = next(requests, None)
        if further is not None:
            return await self._send(_each(itertools.chain((first, further), requests)), None)
        try:
            return await self._send(_each((first,)), None)
        except (WrongType, MixedKeys, NaNKey):
            if isinstance(table, pa.Table | pa.RecordBatch):
                raise
            first.arrow = wire.ipc(await self._careful(stream, table))  # usually raises, and names the row
        return await self._send(_each((first,)), None)

    async def many(
        self, stream: str, tables: Iterable[Batch] | AsyncIterable[Batch], strict: bool, on_ack: OnAck
    ) -> Appended:
        """Add tables over one call."""

        async def requests() -> Requests:
            async for table in tables if isinstance(tables, AsyncIterable) else _each(tables):
                arrow = await self._arrow(stream, batches.kept(table))
                for request in self._numbering.requests(stream, arrow, strict, None, None):
                    yield request

        return await self._send(requests(), on_ack)

    async def load_table(self, name: str, rows: Batch, mode: str) -> "Changed":
        """Write rows to a reference table, over one call that is never retried."""
        requests = batches.table_requests(name, rows, mode, self._numbering.most)
        connection = self._connection

        async def once() -> "Changed":
            return wire.changed_from(
                await connection.start(connection.stubs.queries.LoadTable, requests, connection.timeout)
            )

        return await connection.tried(once, again=False)

    async def _arrow(self, stream: str, table: Batch) -> pa.Table:
        arrow = self._numbering.quick(table)
        return await self._careful(stream, table) if arrow is None else arrow

    async def _careful(self, stream: str, table: Batch) -> pa.Table:
        ask = self._connection.ask
        return batches.careful(table, await ask(calls.stream_schema(stream)), await ask(calls.stream_keys(stream)))

    async def _send(self, requests: Requests, on_ack: OnAck) -> Appended:
        feed = Feed()
        tries = 0
        while True:
            before = feed.answered
            problem: PromisingError
            try:
                await self._feed(feed, requests, on_ack)
                return feed.result()
            except _Lost:
                problem = Unavailable("the call ended while a batch was being sent")
            except grpc.RpcError as error:
                problem = self._connection.problem(error)
            feed.lost()
            tries = 1 if feed.answered > before else tries + 1
            await self._connection.wait(tries, problem)

    async def _feed(self, feed: Feed, requests: Requests, on_ack: OnAck) -> None:
        """One call. It ends when every request is answered, or with the call's error."""
        call = self._connection.start(self._connection.stubs.streams.Ingest)
        try:
            while True:
                while (unsent := feed.unsent()) is not None or (unsent := await _more(feed, requests)) is not None:
                    await _written(call, unsent)
                if not feed.waiting:
                    break
                added = feed.take(await first_of(call, "an ingest call"))
                if added is not None and on_ack is not None:
                    on_ack(added)
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # everything is acknowledged
                await call.done_writing()
                await call.read()  # the service also ends it
        finally:
            call.cancel()


class _Lost(Exception):
    """A call that ended for an unknown reason."""


async def _written(call: Any, request: streams_pb2.IngestRequest) -> None:
    """Send a batch. If the call has ended, raises its error, or `_Lost` where grpc.aio hides it."""
    try:
        await call.write(request)
    except asyncio.InvalidStateError:
        await first_of(call, "an ingest call")
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INTERNAL and not wire_errors.was_told(error):
            raise _Lost from None
        raise


async def _more(feed: Feed, requests: Requests) -> streams_pb2.IngestRequest | None:
    """The next batch to send, if there is room. If it cannot be produced, the feed ends, but not batches in flight."""
    if not feed.room:
        return None
    try:
        request = await anext(requests, None)
    except Exception as problem:
        feed.problem = problem
        return None
    if request is not None:
        feed.add(request)
    return feed.unsent()


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
