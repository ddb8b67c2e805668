"""A session on a service, for asyncio: the methods of `RemoteSession`, to be awaited."""

import asyncio
import contextlib
import itertools
import secrets
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
import pyarrow as pa

from promising import wire, wire_errors
from promising.client import batches, calls
from promising.client import scripts as statements
from promising.client.async_answer import AsyncAnswer
from promising.client.async_subscriptions import AsyncSubscription, AsyncWatching
from promising.client.channels import DEFAULT_TARGET, SENT, FilePath, Place, place
from promising.client.ingest_feed import Feed
from promising.client.progress_bar import Bar
from promising.client.retries import RETRIES, Retries
from promising.errors import InternalError, MixedKeys, NaNKey, NoSuchName, PromisingError, Unavailable, WrongType
from promising.index.ledger import check_number
from promising.index.regions import Appended, Description, Regions, Story
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Batch
from promising.query.answers import Done, Explanation, Frame
from promising.query.budgets import Budget
from promising.query.standing.subscription import Delta
from promising.summaries.adt import Estimates
from promising.v1 import queries_pb2, streams_pb2

if TYPE_CHECKING:
    from promising.index.load_plan import LoadPlan
    from promising.index.prepared_load import Attached
    from promising.index.table import Changed, Mode

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
T = TypeVar("T")


def connect(
    target: str = DEFAULT_TARGET,
    *,
    token: str | None = None,
    ca: FilePath | None = None,
    certificate: FilePath | None = None,
    key: FilePath | None = None,
    timeout: float | None = None,
    retries: int = RETRIES,
    progress: bool = False,
    max_message_bytes: int = SENT,
) -> "AsyncSession":
    """As `promising.connect`, for use in the event loop that runs now. The first call connects."""
    where = place(target, token=token, ca=ca, certificate=certificate, key=key, max_message_bytes=max_message_bytes)
    return AsyncSession(where, timeout=timeout, retries=Retries(retries), progress=progress)


Result: TypeAlias = Done | pa.Table | Explanation | AsyncAnswer


class AsyncSession:
    """The session of a service, used in one event loop. Each method is that of `RemoteSession`, to be awaited."""

    def __init__(self, where: Place, *, timeout: float | None, retries: Retries, progress: bool) -> None:
        self._place = where
        self._timeout = timeout
        self._retries = retries
        self._progress = progress
        if where.credentials is None:
            self._channel = grpc.aio.insecure_channel(where.address, where.options)
        else:
            self._channel = grpc.aio.secure_channel(where.address, where.credentials, where.options)
        self._stubs = calls.Stubs(self._channel)
        self._closed = False
        self._numbering = batches.Numbering(where.sent, secrets.token_hex(12))
        self._watching = AsyncWatching(
            lambda: self._start(self._stubs.queries.Subscribe), where, retries, lambda: self._closed
        )

    # --- statements ----------------------------------------------------------------------------------------------

    async def execute(self, sql: str) -> Result:
        """Carry out one statement."""
        return await self._execute(statements.one(sql))

    async def execute_many(self, sql: str) -> list[Result]:
        """Carry out the statements between semicolons, one after the other, up to the first that fails."""
        return [await self._execute(statement) for statement in statements.many(sql)]

    async def _execute(self, statement: statements.Statement) -> Result:
        try:
            if statement.kind == "select":
                return await (await self.query(statement.sql)).run()
            return await self._ask(calls.execute(statement.sql, again=statement.kind == "read"))
        except PromisingError as problem:
            raise statement.placed(problem) from None

    async def advance(self, stream: str, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more, in microseconds of event time."""
        await self._ask(calls.advance(stream, watermark))

    # --- tuples in -----------------------------------------------------------------------------------------------

    async def ingest(
        self,
        stream: str,
        table: Batch,
        *,
        strict: bool = False,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Appended:
        """Add tuples; what holds is said at `RemoteSession.ingest`."""
        if producer is not None or sequence is not None:
            check_number(producer, sequence)
        table = batches.kept(table)
        requests = self._numbering.requests(stream, await self._arrow(stream, table), strict, producer, sequence)
        one = next(requests)
        further = next(requests, None)
        if further is not None:
            return await self._send(_each(itertools.chain((one, further), requests)), None)
        try:
            return await self._send(_each((one,)), None)
        except (WrongType, MixedKeys, NaNKey):
            if isinstance(table, pa.Table | pa.RecordBatch):
                raise
            one.arrow = wire.ipc(await self._careful(stream, table))  # raises, as a rule, and names the row
        return await self._send(_each((one,)), None)

    async def ingest_many(
        self,
        stream: str,
        tables: Iterable[Batch] | AsyncIterable[Batch],
        *,
        strict: bool = False,
        on_ack: Callable[[Appended], None] | None = None,
    ) -> Appended:
        """Add many tables over one call, several of them under way at a time; the sums of all."""

        async def requests() -> AsyncIterator[streams_pb2.IngestRequest]:
            async for table in tables if isinstance(tables, AsyncIterable) else _each(tables):
                arrow = await self._arrow(stream, batches.kept(table))
                for request in self._numbering.requests(stream, arrow, strict, None, None):
                    yield request

        return await self._send(requests(), on_ack)

    async def _arrow(self, stream: str, table: Batch) -> pa.Table:
        arrow = batches.quick(table)
        if arrow is None or not batches.fits(arrow, self._numbering.most):
            return await self._careful(stream, table)
        return arrow

    async def _careful(self, stream: str, table: Batch) -> pa.Table:
        schema = await self._ask(calls.stream_schema(stream))
        return batches.careful(table, schema, await self._ask(calls.stream_keys(stream)))

    async def _send(
        self, requests: AsyncIterator[streams_pb2.IngestRequest], on_ack: Callable[[Appended], None] | None
    ) -> Appended:
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
                problem = self._problem(error)
            feed.lost()
            tries = 1 if feed.answered > before else tries + 1
            await self._wait(tries, problem)

    async def _feed(
        self,
        feed: Feed,
        requests: AsyncIterator[streams_pb2.IngestRequest],
        on_ack: Callable[[Appended], None] | None,
    ) -> None:
        """One call. It ends when every request has been answered, or with the call's error."""
        call = self._start(self._stubs.streams.Ingest)
        try:
            while True:
                while (unsent := feed.unsent()) is not None or (unsent := await _more(feed, requests)) is not None:
                    await _written(call, unsent)
                if not feed.waiting:
                    break
                added = feed.take(await _read(call, "an ingest call"))
                if added is not None and on_ack is not None:
                    on_ack(added)
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # all is acknowledged
                await call.done_writing()
                await call.read()  # the service ends it, too
        finally:
            call.cancel()

    # --- packages in ---------------------------------------------------------------------------------------------

    async def load_plan(self, stream: str) -> "LoadPlan":
        """What a loader must know of a stream to build a package for it."""
        return await self._ask(calls.load_plan(stream))

    async def attach(self, stream: str, path: str, token: str) -> "Attached":
        """Add a package; what holds is said at `RemoteSession.attach`."""
        return await self._ask(calls.attach(stream, path, token))

    # --- tables in -----------------------------------------------------------------------------------------------

    async def load_table(self, name: str, rows: Batch, mode: "Mode" = "upsert") -> "Changed":
        """Put rows into a reference table; what holds is said at `RemoteSession.load_table`."""
        requests = batches.table_requests(name, rows, mode, self._numbering.most)
        try:
            call = self._start(self._stubs.queries.LoadTable, requests, self._timeout)
            return wire.changed_from(await call)
        except grpc.RpcError as error:
            raise self._problem(error) from None
        except asyncio.CancelledError:
            self._check_open()
            raise

    async def table(self, name: str) -> pa.Table:
        """What a reference table has now."""
        return await self._gather(calls.read_table(name))

    # --- queries -------------------------------------------------------------------------------------------------

    async def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, progress: bool | None = None
    ) -> AsyncAnswer:
        """Ask a SELECT. Errors in the statement are raised here; the service works while the answer is read."""
        return await self._answer(calls.query(sql, budget, seed), progress)

    async def resume(self, token: str, budget: Budget = None, *, progress: bool | None = None) -> AsyncAnswer:
        """Go on with an answer that was cut."""
        return await self._answer(calls.resume(token, budget), progress)

    async def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The answers to many SELECTs, each exact, which share their reading where they can."""
        return await self._gather(calls.query_many(statements))

    async def explain(
        self, sql: str, *, analyze: bool = False, budget: Budget = None, seed: int | None = None
    ) -> Explanation:
        """EXPLAIN [ANALYZE] of a SELECT."""
        return await self._ask(calls.explain(sql, analyze, budget, seed))

    async def _answer(self, request: queries_pb2.QueryRequest, progress: bool | None) -> AsyncAnswer:
        tries = 0
        while True:
            call = self._start(self._stubs.queries.Query, request, self._timeout)
            try:
                opened = (await _read(call, "a query")).opened
                break
            except grpc.RpcError as error:
                problem = self._problem(error)
            tries += 1
            await self._wait(tries, problem)
        schema = wire.table(opened.schema).schema
        frames = self._frames(call, wire.Frames(schema))
        if self._progress if progress is None else progress:
            frames = _shown(frames)
        first = wire.progress_from(opened.progress)
        answer = AsyncAnswer(frames, first, schema, lambda: self._cancel(opened.query_id), call.cancel)
        # An answer that nobody reads any more must not keep its call, and with it the query, waiting.
        weakref.finalize(answer, call.cancel).atexit = False
        return answer

    async def _frames(self, call: Any, parts: wire.Frames) -> AsyncIterator[Frame]:
        last: Frame | None = None
        problem: PromisingError | None = None
        try:
            while (response := await call.read()) is not EOF:
                frame = parts.add(response.frame)
                if frame is not None and frame.progress.token is not None:
                    last = frame  # told when the call is over: whoever lets go of a call lets go of its token
                elif frame is not None:
                    yield frame
        except grpc.RpcError as error:
            problem = self._problem(error)
        except asyncio.CancelledError:
            self._check_open()
            if not call.cancelled() or _is_cancelled():
                raise  # the task is ended, not the answer
            return
        if last is not None:
            yield last
        if problem is not None:
            raise problem

    async def _cancel(self, query_id: str) -> None:
        with contextlib.suppress(NoSuchName):  # it has ended by itself
            await self._ask(calls.cancel(query_id))

    # --- continuous queries --------------------------------------------------------------------------------------

    async def subscribe(self, name: str, token: str | None = None) -> AsyncSubscription:
        """Watch a continuous query; what holds is said at `RemoteSession.subscribe`."""
        return await self._watching.subscribe(name, token)

    async def poll(
        self, subscriptions: Iterable[AsyncSubscription], timeout: float | None = 0.0
    ) -> dict[AsyncSubscription, Delta]:
        """The next change of each of these; what holds is said at `RemoteSession.poll`."""
        return await self._watching.poll(subscriptions, timeout)

    # --- for those who read elsewhere ----------------------------------------------------------------------------

    async def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """Where the tuples lie that a SELECT is about, the most promising first."""
        return await self._gather(calls.plan_scan(sql, share))

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> AsyncIterator[pa.Table]:
        """Tuples by arrival, a part at a time, for `async for`; what holds is said at `RemoteSession.fetch`."""
        return self._fetched(calls.fetch(stream, first, last, columns))

    async def _fetched(self, request: queries_pb2.FetchRequest) -> AsyncIterator[pa.Table]:
        tries = 0
        while True:
            call = self._start(self._stubs.queries.Fetch, request, self._timeout)
            try:
                while (part := await call.read()) is not EOF:
                    table = wire.table(part.rows)
                    request.first += table.num_rows
                    tries = 0
                    yield table
                return
            except grpc.RpcError as error:
                problem = self._problem(error)
            except asyncio.CancelledError:
                self._check_open()
                raise
            finally:
                call.cancel()
            tries += 1
            await self._wait(tries, problem)

    # --- summaries -----------------------------------------------------------------------------------------------

    async def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """How many tuples of each key the window holds, with bounds, from the summary."""
        return await self._ask(calls.estimate(summary, keys, window))

    async def regions(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return await self._ask(calls.regions(summary, keys, window))

    async def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples that have one of the keys, after a column `probe`: the place of a tuple's key in the question."""
        return await self._gather(calls.probe(summary, keys, window, columns))

    async def describe(self, summary: str, *, cells: bool = False) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells` the tuples of every cell."""
        return await self._ask(calls.describe(summary, cells))

    async def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return await self._ask(calls.story(summary, granularity, zone))

    # --- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the connection, and every answer that is still read over it. What the service has, it keeps."""
        self._closed = True
        self._watching.close()
        await self._channel.close(None)

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- calls ---------------------------------------------------------------------------------------------------

    async def _ask(self, ask: calls.Ask[T]) -> T:
        """A call with one response."""

        async def finish(call: Any) -> Any:
            return await call

        return await self._try(ask, finish)

    async def _gather(self, ask: calls.Ask[T]) -> T:
        """A call whose response comes in parts, all of which are waited for."""

        async def finish(call: Any) -> Any:
            return [part async for part in call]

        return await self._try(ask, finish)

    async def _try(self, ask: calls.Ask[T], finish: Callable[[Any], Awaitable[Any]]) -> T:
        tries = 0
        while True:
            try:
                return ask.read(await finish(self._start(ask.of(self._stubs), ask.request, self._timeout)))
            except grpc.RpcError as error:
                problem = self._problem(error)
            except asyncio.CancelledError:
                self._check_open()
                raise
            tries += 1
            if not ask.again:
                raise problem
            await self._wait(tries, problem)

    def _start(self, method: Any, *request: Any) -> Any:
        self._check_open()
        if not request:
            return method(metadata=self._place.metadata)
        message, timeout = request
        return method(message, timeout=timeout, metadata=self._place.metadata)

    def _check_open(self) -> None:
        """Closing ends calls in the way that asyncio ends tasks; who only waited for one should hear the reason."""
        if self._closed and not _is_cancelled():
            raise Unavailable("the session is closed")

    async def _wait(self, tries: int, problem: PromisingError) -> None:
        """Wait before the next try, or raise the problem of the last one."""
        pause = None if self._closed else self._retries.pause(tries, problem)
        if pause is None:
            raise problem
        await asyncio.sleep(pause)

    def _problem(self, error: grpc.RpcError) -> PromisingError:
        return Unavailable("the session is closed") if self._closed else self._place.problem(error)


class _Lost(Exception):
    """A call that ended for a reason that cannot be found out."""


async def _read(call: Any, what: str) -> Any:
    found = await call.read()
    if found is EOF:
        raise InternalError(f"the service ended {what} without an answer")
    return found


async def _written(call: Any, request: streams_pb2.IngestRequest) -> None:
    """Send a batch. If the call has ended, its error is raised, or, where grpc.aio hides it, that it is lost."""
    try:
        await call.write(request)
    except asyncio.InvalidStateError:
        await _read(call, "an ingest call")
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INTERNAL and not wire_errors.was_told(error):
            raise _Lost from None
        raise


async def _more(feed: Feed, requests: AsyncIterator[streams_pb2.IngestRequest]) -> streams_pb2.IngestRequest | None:
    """A further batch to send, if there is room for it. One that cannot be had ends the feed, not what is under way."""
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


async def _shown(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    """The same frames, with a bar for as long as they come."""
    with Bar() as bar:
        async for frame in frames:
            bar.show(frame.progress)
            yield frame


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
