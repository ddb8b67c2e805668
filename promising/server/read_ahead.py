"""Batches of one call that have been read and wait to be added: some, so that threads have a few at a time to work on,
and so much and no more, so that a client that sends faster than it can be served waits, not the memory."""

import asyncio
from typing import Any, NamedTuple

import grpc

from promising.errors import Unavailable
from promising.v1 import streams_pb2

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
ENOUGH = 1 << 20  # bytes that wait; reading goes on when they have been taken
EACH = 1 << 10  # bytes that a message takes, however little it says


class Batch(NamedTuple):
    """A request and its Arrow data. Asking the request for it makes a copy each time."""

    request: streams_pb2.IngestRequest
    arrow: bytes


class Ahead:
    """Reads a call ahead: at most `ENOUGH` bytes and one message wait."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._waiting: list[Batch] = []
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = False
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(lambda _: self._news.set())

    async def _read(self) -> None:
        while (request := await self._context.read()) is not EOF:
            request.DiscardUnknownFields()  # they would be kept, and not counted
            batch = Batch(request, request.arrow)
            self._waiting.append(batch)
            self._bytes += EACH + len(batch.arrow) + len(request.stream) + len(request.producer_id)
            self._news.set()
            if self._bytes >= ENOUGH:
                self._room.clear()
                await self._room.wait()

    async def take(self) -> list[Batch]:
        """All that wait, one at least; none when the client has sent its last.

        Raises what reading raised; `Unavailable` if it was stopped.
        """
        while not self._waiting and not self._reading.done():
            self._news.clear()
            await self._news.wait()
        if not self._waiting:
            if self._stopped:
                raise Unavailable("the service is shutting down; send what was not acknowledged again, later")
            self._reading.result()
        taken, self._waiting, self._bytes = self._waiting, [], 0
        self._room.set()
        return taken

    def stop(self) -> None:
        """Read no more. What waits can still be taken."""
        self._stopped = not self._reading.done()
        self._reading.cancel()
