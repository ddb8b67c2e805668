"""Continuous queries watched by a session in an event loop: one call for all of them, read by a task."""

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
    """`RemoteSubscription`, to be awaited: `async for` over its changes, or `await poll()` and look at the view."""

    def __init__(self, watching: "AsyncWatching", watched: Watched, token: str | None) -> None:
        assert watched.opened is not None
        self._watching = watching
        self._watched = watched
        self._opened = watched.opened
        self._view = view_of(watched.opened)
        self.token = token
        """Stands for what has been seen: `subscribe` with it goes on from there."""

    @property
    def name(self) -> str:
        """Of the query."""
        return self._watched.name

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    @property
    def watermark(self) -> int | None:
        """The time at which the view stands; None before the first change."""
        return self._view.watermark

    @property
    def interrupted(self) -> PromisingError | None:
        """Why there is no connection, while one is sought."""
        return self._watching.interrupted

    async def poll(self, timeout: float | None = 0.0) -> Delta | None:
        """The next change, taken into the view; None if there is none within `timeout` seconds (None: wait for it)."""
        found = await self._watching.take([self._watched], timeout)
        return self.told(*found[self._watched]) if found else None

    def told(self, opened: wire_changes.Opened, delta: Delta) -> Delta:
        """Take in the next change."""
        if opened != self._opened:  # dropped, and made anew with other columns
            self._opened, self._view = opened, view_of(opened)
        self._view.apply(delta)
        self.token = delta.token
        return delta

    def snapshot(self) -> pa.Table:
        """The rows of the view as it was after the last change."""
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
        """Watch it no more."""
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
        """Watch a query. Whatever is wrong with the question is raised here."""
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
        """The next change of each, taken into its view, of those that have one."""
        mine = list(dict.fromkeys(subscriptions))
        if any(one._watching is not self for one in mine):
            raise BadQuestion(ELSEWHERE)
        found = await self.take([one._watched for one in mine], timeout)
        return {one: one.told(*found[one._watched]) for one in mine if one._watched in found}

    async def take(
        self, several: list[Watched], timeout: float | None
    ) -> dict[Watched, tuple[wire_changes.Opened, Delta]]:
        """The next change of each; none if there is none of any in time, or if nobody wants it any more."""
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
        """Watch it no more. Without any the call ends."""
        self._board.leave(watched)
        self._unsent.set()
        self._tell()
        if not len(self._board) and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """Nothing more comes."""
        if self._task is not None:
            self._task.cancel()
        self._board.failed(Unavailable(CLOSED))
        self._tell()

    async def _told(self) -> None:
        """Wait until something has come."""
        await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # --- in a task of its own ------------------------------------------------------------------------------------

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
        """One call, to its end: whether anything came, and why it ended."""
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
        except Exception as problem:  # whoever waits would wait for ever
            return came, InternalError(f"what the service sent cannot be read: {type(problem).__name__}: {problem}")
        finally:
            if writing is not None:
                writing.cancel()
            if call is not None:
                call.cancel()

    async def _write(self, call: Any) -> None:
        """Send what is to be sent, as it comes. That the call has ended, whoever reads it is told."""
        try:
            while True:
                await self._unsent.wait()
                self._unsent.clear()
                unsent, self._board.unsent = self._board.unsent, []
                for request in unsent:
                    await call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return
