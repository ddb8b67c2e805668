"""Continuous queries watched by a session in an event loop: one call for all, read by a task."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import pyarrow as pa

from promising import wire_changes
from promising.client.async_connection import EOF, AsyncConnection
from promising.client.connection import CLOSED
from promising.client.subscription_state import Board, Watched, pause, view_of, why
from promising.errors import BadQuestion, InternalError, PromisingError, Unavailable
from promising.query.standing.subscription import ELSEWHERE, Delta


class AsyncSubscription:
    """`RemoteSubscription` as coroutines: `async for` over its changes, or `await poll()` and read the view."""

    def __init__(self, watching: "AsyncWatching", watched: Watched, token: str | None) -> None:
        assert watched.opened is not None
        self._watching = watching
        self._watched = watched
        self._opened = watched.opened
        self._view = view_of(watched.opened)
        self.token = token
        """Resume token: `subscribe` with it continues after the last change seen."""

    @property
    def name(self) -> str:
        """Name of the query."""
        return self._watched.name

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    @property
    def watermark(self) -> int | None:
        """The event time of the view; None before the first change."""
        return self._view.watermark

    @property
    def interrupted(self) -> PromisingError | None:
        """Why the connection is lost, while it is being restored."""
        return self._watching.interrupted

    async def poll(self, timeout: float | None = 0.0) -> Delta | None:
        """Apply the next change to the view and return it; None after `timeout` seconds (None: no limit)."""
        found = await self._watching.take([self._watched], timeout)
        return self.told(*found[self._watched]) if found else None

    def told(self, opened: wire_changes.Opened, delta: Delta) -> Delta:
        """Apply the next change."""
        if opened != self._opened:  # dropped, and created again with other columns
            self._opened, self._view = opened, view_of(opened)
        self._view.apply(delta)
        self.token = delta.token
        return delta

    def snapshot(self) -> pa.Table:
        """The rows of the view after the last change."""
        return self._view.snapshot()

    def __len__(self) -> int:
        return len(self._view)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        delta = await self.poll(None)
        if delta is None:
            raise StopAsyncIteration
        return delta

    async def close(self) -> None:
        """End the subscription."""
        self._watching.leave(self._watched)

    async def __aenter__(self) -> "AsyncSubscription":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncWatching:
    """All subscriptions of a session."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._board = Board()
        self._news = asyncio.Event()
        self._unsent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def interrupted(self) -> PromisingError | None:
        return self._board.interrupted

    async def subscribe(self, name: str, token: str | None) -> AsyncSubscription:
        """Subscribe to a query. Errors in the request are raised here."""
        if self._connection.closed:
            raise Unavailable(CLOSED)
        watched = self._board.watch(name, token)
        self._unsent.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="subscriptions")
        try:
            while watched.opened is None and watched.problem is None:
                await self._told()
        except BaseException:
            self.leave(watched)
            raise
        if watched.problem is not None:
            raise watched.problem
        return AsyncSubscription(self, watched, token)

    async def poll(
        self, subscriptions: Iterable[AsyncSubscription], timeout: float | None
    ) -> dict[AsyncSubscription, Delta]:
        """The next change of each subscription that has one, applied to its view."""
        mine = list(dict.fromkeys(subscriptions))
        if any(one._watching is not self for one in mine):
            raise BadQuestion(ELSEWHERE)
        found = await self.take([one._watched for one in mine], timeout)
        return {one: one.told(*found[one._watched]) for one in mine if one._watched in found}

    async def take(
        self, several: list[Watched], timeout: float | None
    ) -> dict[Watched, tuple[wire_changes.Opened, Delta]]:
        """The next change of each; empty on a timeout, or if all are closed."""
        try:
            async with asyncio.timeout(timeout if timeout is None or timeout > 0 else None):
                while True:
                    found = self._board.take_all(several)
                    self._unsent.set()
                    late = timeout is not None and timeout <= 0
                    if found or late or all(watched.closed for watched in several):
                        return found
                    await self._told()
        except TimeoutError:
            return {}

    def leave(self, watched: Watched) -> None:
        """End a subscription. The last one ends the call."""
        self._board.leave(watched)
        self._unsent.set()
        self._tell()
        if not len(self._board) and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """End all subscriptions."""
        if self._task is not None:
            self._task.cancel()
        self._board.failed(Unavailable(CLOSED))
        self._tell()

    async def _told(self) -> None:
        """Wait until a change arrives."""
        await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # --- in its own task -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        tries, connected = 0, False
        while True:
            came, problem = await self._read()
            tries, connected = 1 if came else tries + 1, connected or came
            if not len(self._board):
                return
            wait = None if self._connection.closed else pause(self._connection.retries, tries, problem, connected)
            if wait is None:
                self._board.failed(Unavailable(CLOSED) if self._connection.closed else problem)
                self._tell()
                return
            self._board.interrupted = problem
            self._tell()
            await asyncio.sleep(wait)

    async def _read(self) -> tuple[bool, PromisingError]:
        """Run one call to its end: whether anything arrived, and why it ended."""
        came, call, writing = False, None, None
        try:
            self._board.begin()
            self._unsent.set()
            call = self._connection.start(self._connection.stubs.queries.Subscribe)
            writing = asyncio.ensure_future(self._write(call))
            while (response := await call.read()) is not EOF:
                came = True
                self._board.add(response)
                self._unsent.set()
                self._tell()
            return came, Unavailable("the service ended the call")
        except grpc.RpcError as error:
            return came, why(self._connection.place, error)
        except PromisingError as problem:
            return came, problem
        except Exception as problem:  # else its waiters would wait forever
            return came, InternalError(f"what the service sent cannot be read: {type(problem).__name__}: {problem}")
        finally:
            if writing is not None:
                writing.cancel()
            if call is not None:
                call.cancel()

    async def _write(self, call: Any) -> None:
        """Send requests as they arrive. The reader reports the end of the call."""
        try:
            while True:
                await self._unsent.wait()
                self._unsent.clear()
                unsent, self._board.unsent = self._board.unsent, []
                for request in unsent:
                    await call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return
