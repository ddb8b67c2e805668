"""Read-ahead of one ingest call: enough for threads to take several batches at a time, bounded so that a fast client
waits instead of filling the memory.
"""

import asyncio
from typing import Any, NamedTuple

import grpc

from promising.errors import Unavailable
from promising.v1 import streams_pb2

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
ENOUGH = 1 << 20  # bytes that may wait; reading resumes when they are taken
EACH = 1 << 10  # minimum bytes counted per message


class Batch(NamedTuple):
    """A request and its Arrow data, which the request would copy at each access."""

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
            request.DiscardUnknownFields()  # they would be retained, and not counted
            batch = Batch(request, request.arrow)
            self._waiting.append(batch)
            self._bytes += EACH + len(batch.arrow) + len(request.stream) + len(request.producer_id)
            self._news.set()
            if self._bytes >= ENOUGH:
                self._room.clear()
                await self._room.wait()

    async def take(self) -> list[Batch]:
        """All waiting batches, at least one; none after the client's last.

        Raises the error of reading; `Unavailable` if it was stopped.
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
        """Stop reading. Waiting batches can still be taken."""
        self._stopped = not self._reading.done()
        self._reading.cancel()
