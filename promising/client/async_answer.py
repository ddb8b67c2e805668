"""Answers of a service, streamed to an asyncio session: frames of a query, and tuples by arrival."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa

from promising import wire
from promising.client import calls
from promising.client.async_connection import EOF, AsyncConnection, first_of, is_cancelled
from promising.client.progress_bar import Bar
from promising.errors import NoSuchName, PromisingError
from promising.query.answer_html import answer_html
from promising.query.answers import Frame, Progress
from promising.v1 import queries_pb2

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class AsyncAnswer:
    """The answer to one query; `async for frame in answer` waits for frames. See `query.answers.Answer`."""

    def __init__(
        self,
        frames: AsyncIterator[Frame],
        first: Progress,
        schema: pa.Schema,
        cancel: Callable[[], Awaitable[None]],
        close: Callable[[], None],
    ) -> None:
        self.schema = schema
        self._frames = frames
        self._first = first
        self._cancel = cancel
        self._close = close
        self._tables: list[pa.Table] = []
        self._last: Frame | None = None
        self._problem: BaseException | None = None

    def _repr_html_(self) -> str:
        """For a notebook: what has arrived so far, with its coverage; `run` it first for all of it."""
        rows = pa.concat_tables(self._tables) if self._tables else self.schema.empty_table()
        return answer_html(rows, self.progress)

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """Frames as they arrive. Frames already read are stored for `to_arrow` and not repeated."""
        while (frame := await self._next(keep=True)) is not None:
            yield frame

    async def stream(self) -> AsyncIterator[Frame]:
        """Frames as they arrive, without storing them: `to_arrow` will lack their rows."""
        while (frame := await self._next(keep=False)) is not None:
            yield frame

    async def _next(self, keep: bool) -> Frame | None:
        if self._problem is not None:
            raise self._problem
        try:
            frame = await anext(self._frames, None)
        except PromisingError as problem:
            self._problem = problem
            raise
        if frame is None:
            return None
        if frame.mode == "replace":
            self._tables = [frame.rows]
        elif frame.rows.num_rows and keep:
            self._tables.append(frame.rows)
        self._last = frame
        return frame

    async def run(self) -> "AsyncAnswer":
        """Wait for the whole answer."""
        while await self._next(keep=True) is not None:
            pass
        return self

    async def cancel(self) -> None:
        """Make the service stop after the current slice of work. The next frame is the last."""
        await self._cancel()

    async def close(self) -> None:
        """Stop and release everything. No frame follows."""
        self._close()
        self._frames = _nothing()

    @property
    def progress(self) -> Progress:
        """As of the last frame read; before the first, what is known without work."""
        return self._first if self._last is None else self._last.progress

    @property
    def last(self) -> Frame | None:
        """The last frame read."""
        return self._last

    async def bounds(self) -> tuple[pa.Table, pa.Table] | None:
        """Final lower and upper bounds of aggregates."""
        await self.run()
        if self._last is None or self._last.lower is None or self._last.upper is None:
            return None
        return self._last.lower, self._last.upper

    async def to_arrow(self) -> pa.Table:
        """All rows; waits for the rest of the answer."""
        await self.run()
        return pa.concat_tables(self._tables) if self._tables else self.schema.empty_table()

    async def to_pandas(self) -> "pd.DataFrame":
        """All rows as a pandas frame; needs pandas."""
        table: Any = await self.to_arrow()
        return table.to_pandas()

    async def to_polars(self) -> "pl.DataFrame":
        """All rows as a Polars frame; needs Polars."""
        import polars as pl  # noqa: PLC0415  # optional

        found = pl.from_arrow(await self.to_arrow())
        assert isinstance(found, pl.DataFrame)
        return found


async def _nothing() -> AsyncIterator[Frame]:
    nothing: tuple[Frame, ...] = ()
    for frame in nothing:
        yield frame


async def answered(connection: AsyncConnection, request: queries_pb2.QueryRequest, bar: bool) -> AsyncAnswer:
    """The answer to a query, with a bar on stderr while it is read. Errors in the statement are raised here."""

    async def once() -> tuple[Any, queries_pb2.QueryOpened]:
        call = connection.start(connection.stubs.queries.Query, request, connection.timeout)
        return call, (await first_of(call, "a query")).opened

    call, opened = await connection.tried(once)

    async def cancel() -> None:
        with contextlib.suppress(NoSuchName):  # it has ended
            await connection.ask(calls.cancel(opened.query_id))

    schema = wire.table(opened.schema).schema
    frames = _frames(connection, call, wire.Frames(schema))
    first = wire.progress_from(opened.progress)
    answer = AsyncAnswer(_shown(frames) if bar else frames, first, schema, cancel, call.cancel)
    # An abandoned answer must not keep its call, and with it the query, open.
    weakref.finalize(answer, call.cancel).atexit = False
    return answer


async def _frames(connection: AsyncConnection, call: Any, parts: wire.Frames) -> AsyncIterator[Frame]:
    last: Frame | None = None
    problem: PromisingError | None = None
    try:
        while (response := await call.read()) is not EOF:
            frame = parts.add(response.frame)
            if frame is not None and frame.progress.token is not None:
                last = frame  # yielded after the call has ended: a caller that drops an open call loses its token
            elif frame is not None:
                yield frame
    except grpc.RpcError as error:
        problem = connection.problem(error)
    except asyncio.CancelledError:
        connection.check_open()
        if not call.cancelled() or is_cancelled():
            raise  # the task is cancelled, not the answer
        return
    if last is not None:
        yield last
    if problem is not None:
        raise problem


async def _shown(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    """The same frames, with a progress bar."""
    with Bar() as bar:
        async for frame in frames:
            bar.show(frame.progress)
            yield frame


async def fetched(connection: AsyncConnection, request: queries_pb2.FetchRequest) -> AsyncIterator[pa.Table]:
    """Tuples by arrival. After a lost connection it resumes with those that have not arrived."""
    tries = 0
    while True:
        call = connection.start(connection.stubs.queries.Fetch, request, connection.timeout)
        try:
            while (part := await call.read()) is not EOF:
                table = wire.table(part.rows)
                request.first += table.num_rows
                tries = 0
                yield table
            return
        except grpc.RpcError as error:
            problem = connection.problem(error)
        except asyncio.CancelledError:
            connection.check_open()
            raise
        finally:
            call.cancel()
        tries += 1
        await connection.wait(tries, problem)
