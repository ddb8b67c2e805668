"""Subscribe and LoadTable: views of standing queries out, rows of reference tables in."""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa

from promising import wire, wire_changes, wire_times
from promising.errors import BadRequest, InternalError, LimitReached, PromisingError, Unavailable
from promising.query.standing.subscription import Delta
from promising.server import access, logs
from promising.server.arrow import read_batch
from promising.server.context import ServerContext
from promising.server.open_calls import RETRY, Call
from promising.v1 import queries_pb2, queries_pb2_grpc

if TYPE_CHECKING:
    from promising.index.table import Mode
    from promising.query.standing.engine import Engine, Feed

Context = Any  # grpc.aio.ServicerContext, whose stubs are not generic
EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs

HEARTBEAT = 5.0  # seconds after which a silent call sends something, and a quiet query a new token
LONGEST_TICK = 1.0  # maximum accumulated CPU seconds of a tick
AHEAD = 1000  # maximum pending requests of a call
LONGEST = 1 << 16  # maximum bytes of a name and a token
MODES: "dict[queries_pb2.LoadMode.ValueType, Mode]" = {
    queries_pb2.LOAD_MODE_UNSPECIFIED: "upsert",
    queries_pb2.LOAD_MODE_INSERT: "insert",
    queries_pb2.LOAD_MODE_UPSERT: "upsert",
    queries_pb2.LOAD_MODE_UPDATE: "update",
}
GONE = "the service is shutting down; subscribe again in a moment, with the last token"


class Ticker:
    """Updates the continuous queries periodically, and wakes subscribers."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._waiting: set[asyncio.Event] = set()
        self._last: float | None = None
        parts.session.standing.driven = True

    async def run(self) -> None:
        """Tick until cancelled; without continuous queries nothing is done."""
        every = self._parts.settings.standing.tick_seconds
        due = time.monotonic()
        while True:
            due = max(due + every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if not self._waiting and not self._parts.session.catalog.queries:
                continue
            await self.now()
            for woken in self._waiting:
                woken.set()

    async def now(self) -> None:
        """Tick now, outside the schedule: views then include everything acknowledged before."""
        began = time.monotonic()
        try:
            await self._parts.work.tick(self._tick)
        except Exception as problem:
            logs.event("fault", level=logging.ERROR, error=type(problem).__name__, frames=logs.frames(problem))
        self._parts.tally.ticked(time.monotonic() - began)

    def _tick(self) -> None:
        """Late ticks get the CPU time of those skipped."""
        settings, now = self._parts.settings.standing, time.monotonic()
        since = settings.tick_seconds if self._last is None else now - self._last
        self._last = now
        self._parts.session.standing.tick(
            idle=time.monotonic_ns() // 1000,  # the wall clock may be set
            silence=round(settings.silence_seconds * wire_times.SECOND),
            capacity=settings.cpu * min(since, LONGEST_TICK),
        )

    @contextlib.contextmanager
    def waking(self, event: asyncio.Event) -> Iterator[None]:
        """Set an event after each tick within the block."""
        self._waiting.add(event)
        try:
            yield
        finally:
            self._waiting.discard(event)


@dataclass
class Subscribed:
    """One query of a call. `said`: when its last section was sent, by the monotonic clock; `last`: that section."""

    feed: "Feed"
    opened: wire_changes.Opened
    said: float | None = None
    last: Delta | None = None

    def is_time(self, delta: Delta) -> bool:
        """Whether a change may be sent as a watermark alone."""
        last = self.last
        return (
            wire_changes.is_time(delta)
            and last is not None
            and self.said is not None
            and (last.shed, last.lag) == (delta.shed, delta.lag)
            and time.monotonic() - self.said < HEARTBEAT
        )


class Subscriber:
    """The queries of one call. Nothing is buffered: its feeds only store positions."""

    def __init__(self, engine: "Engine", most: int) -> None:
        self._engine = engine
        self._most = most
        self._changes: deque[queries_pb2.SubscribeRequest] = deque()
        self._subscribed: dict[int, Subscribed] = {}
        self._lock = threading.Lock()  # held for one step of a frame, or the end
        self._closed = False

    def __len__(self) -> int:
        """Queries, including those to be added."""
        return len(self._subscribed) + len(self._changes)

    @property
    def asked(self) -> int:
        """Pending requests."""
        return len(self._changes)

    @property
    def full(self) -> bool:
        """Whether further requests should wait."""
        return len(self._changes) >= AHEAD

    def change(self, request: queries_pb2.SubscribeRequest) -> None:
        """Queue a request, to be applied with the next frame."""
        asked = request.WhichOneof("change")
        if asked is None:
            raise BadRequest("add or remove is missing", "add")
        if len(request.add.query) + len(request.add.resume_token) > LONGEST:
            raise BadRequest(f"a query and a token have at most {LONGEST:,} characters together", "add")
        self._changes.append(request)

    def step(self, messages: Iterator[queries_pb2.SubscribeResponse]) -> queries_pb2.SubscribeResponse | None:
        """The next message of a frame; None at its end, and at that of the call."""
        with self._lock:
            return None if self._closed else next(messages, None)

    def frame(self, tick: int, asked: int) -> Iterator[queries_pb2.SubscribeResponse]:
        """The changes as messages of bounded size; none if nothing changed. Each is built on demand, so that a slow
        consumer gets the latest state. The first `asked` requests are applied: those queued before a tick.
        """
        message, held = queries_pb2.SubscribeResponse(tick=tick), 0
        times: dict[int, list[int]] = {}
        for section in self._sections(times, asked):
            size = section.ByteSize()
            if held and held + size > wire.PART:
                message.continued = True
                yield message
                message, held = queries_pb2.SubscribeResponse(tick=tick), 0
            message.sections.append(section)
            held += size
        for watermark, numbers in times.items():
            message.times.add(watermark=wire_times.timestamp(watermark), numbers=numbers)
        if message.sections or message.times:
            yield message

    def _sections(self, times: dict[int, list[int]], asked: int) -> Iterator[queries_pb2.SubscriptionSection]:
        for _ in range(asked):
            yield from self._changed(self._changes.popleft())
        for number, subscribed in list(self._subscribed.items()):
            try:
                delta = subscribed.feed.take()
            except Exception as problem:
                yield self._ended(number, problem)
                continue
            if delta is None:
                continue
            if subscribed.is_time(delta):
                times.setdefault(delta.watermark, []).append(number)
                continue
            subscribed.said, subscribed.last = time.monotonic(), delta
            opened = _opened(subscribed.feed)
            parts = wire_changes.section_parts(number, delta)
            if opened != subscribed.opened:  # dropped, and created again with other columns
                subscribed.opened = opened
                first = next(parts)
                first.opened.CopyFrom(wire_changes.opened_to(opened))
                yield first
            yield from parts

    def _changed(self, request: queries_pb2.SubscribeRequest) -> Iterator[queries_pb2.SubscriptionSection]:
        if request.WhichOneof("change") == "remove":
            gone = self._subscribed.pop(request.remove, None)
            if gone is not None:
                gone.feed.close()
            return
        add = request.add
        if add.number in self._subscribed:
            raise BadRequest(f"subscription {add.number} is there already; give each its own number", "add.number")
        try:
            if len(self._subscribed) >= self._most:
                raise LimitReached(f"{self._most:,} queries on one call, which is all it may have; open another")
            feed = self._engine.subscribe(add.query, add.resume_token or None)
        except Exception as problem:
            yield self._ended(add.number, problem)
            return
        opened = _opened(feed)
        self._subscribed[add.number] = Subscribed(feed, opened)
        yield queries_pb2.SubscriptionSection(number=add.number, opened=wire_changes.opened_to(opened))

    def _ended(self, number: int, problem: Exception) -> queries_pb2.SubscriptionSection:
        gone = self._subscribed.pop(number, None)
        if gone is not None:
            gone.feed.close()
        if not isinstance(problem, PromisingError):
            problem = InternalError(f"a fault of the service; its log has it as {access.fault(problem)}")
        return wire_changes.refused(number, problem)

    def close(self) -> None:
        """Release all feeds, after the current step."""
        with self._lock:
            self._closed = True
            for subscribed in self._subscribed.values():
                subscribed.feed.close()
            self._subscribed.clear()


class Subscriptions(queries_pb2_grpc.QueryServiceServicer):
    """The part of the QueryService for views and tables."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._limits = parts.settings.limits

    # --- views out -----------------------------------------------------------------------------------------------

    async def Subscribe(self, requests: object, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        """Slow consumers are disconnected and may resume: the next frame has all that was left out."""
        parts = self._parts
        if parts.draining:
            raise Unavailable(GONE)
        with parts.subscriptions.admitted(access.caller()) as call:
            connection = Subscriber(parts.session.standing, self._limits.max_subscribed_queries)
            parts.connections.add(connection)
            woken = asyncio.Event()
            reading = asyncio.ensure_future(_read(context, connection, woken))
            draining = asyncio.ensure_future(parts.drain.wait())

            def ended(task: "asyncio.Future[Any]") -> None:
                woken.set()
                if not task.cancelled():
                    task.exception()  # retrieved, or asyncio complains if nobody else does

            for task in (reading, draining):
                task.add_done_callback(ended)
            try:
                with parts.ticker.waking(woken):
                    await self._tell(call, connection, woken, reading, context)
                return
            except asyncio.CancelledError:
                pass
            finally:
                reading.cancel()
                draining.cancel()
                parts.connections.discard(connection)
                parts.work.later(connection.close)
            await parts.subscriptions.give_up(call, context, RETRY)

    async def _tell(
        self,
        call: Call,
        connection: Subscriber,
        woken: asyncio.Event,
        reading: "asyncio.Future[None]",
        context: Context,
    ) -> None:
        """Send frames until the client disconnects or has no subscription left."""
        said = time.monotonic()
        while True:
            woken.clear()
            ended = reading.done()
            if ended:
                reading.result()
            if asked := connection.asked:
                await self._parts.ticker.now()
            if await self._frame(call, connection, asked, context):
                said = time.monotonic()
            elif time.monotonic() - said >= HEARTBEAT:
                await _write(call, context, queries_pb2.SubscribeResponse(tick=self._parts.tally.ticks))
                said = time.monotonic()
            if self._parts.draining:
                raise Unavailable(GONE)
            if ended and not len(connection):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(said + HEARTBEAT - time.monotonic(), 0)):
                    await woken.wait()

    async def _frame(self, call: Call, connection: Subscriber, asked: int, context: Context) -> bool:
        """Send one frame; returns whether there was one."""
        messages = connection.frame(self._parts.tally.ticks, asked)
        sent = False
        while (message := await self._parts.work.feed(connection.step, messages)) is not None:
            await _write(call, context, message)
            sent = True
        return sent

    # --- tables in -----------------------------------------------------------------------------------------------

    async def LoadTable(
        self, requests: AsyncIterable[queries_pb2.LoadTableRequest], context: Context
    ) -> queries_pb2.LoadTableResponse:
        """All parts are received before anything changes."""
        limits, work = self._limits, self._parts.work
        with self._parts.ingests.admitted(access.caller()):
            first: queries_pb2.LoadTableRequest | None = None
            tables: list[pa.Table] = []
            room = limits.max_table_bytes
            async for request in requests:
                arrow = request.arrow
                if first is None:
                    first = queries_pb2.LoadTableRequest(table=request.table, mode=request.mode)
                room -= len(arrow)
                if room < 0:
                    most = limits.max_table_bytes
                    raise LimitReached(f"more than {most:,} bytes of rows in one load; split it into several")
                tables.append(await work.batch(read_batch, arrow, limits.max_batch_rows, limits.max_message_bytes))
            if first is None:
                raise BadRequest("no part has come: the first one names the table", "table")
            mode = MODES.get(first.mode)
            if mode is None:
                raise BadRequest(f"mode {first.mode} is unknown", "mode")
            rows = await work.batch(_together, tables)
            changed = await work.batch(self._parts.session.load_table, first.table, rows, mode)
        logs.event("table", client=access.caller().name, mode=mode, inserted=changed.inserted, updated=changed.updated)
        return wire.changed_to(changed)


async def _read(context: Context, connection: Subscriber, woken: asyncio.Event) -> None:
    """Queue the client's requests until its last."""
    while (request := await context.read()) is not EOF:
        request.DiscardUnknownFields()  # they would be retained, and not counted
        connection.change(request)
        woken.set()
        while connection.full:
            await asyncio.sleep(0.01)


async def _write(call: Call, context: Context, message: queries_pb2.SubscribeResponse) -> None:
    """Send a message; waits for the consumer while feeds accumulate changes."""
    with call.writing():
        await context.write(message)


def _opened(feed: "Feed") -> wire_changes.Opened:
    return wire_changes.Opened(feed.schema, feed.key_width, feed.keyed, feed.endless)


def _together(tables: list[pa.Table]) -> pa.Table:
    if any(table.schema != tables[0].schema for table in tables):
        raise BadRequest("the parts of a load have different columns; send the same in each", "arrow")
    return pa.concat_tables(tables)
