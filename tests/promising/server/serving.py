"""A server on loopback and raw stubs to it, for tests that attack it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2

from promising import wire, wire_errors, wire_times
from promising.index.stream import Stream
from promising.loaders.spark_sql import spark_sql
from promising.query.answers import Frame
from promising.query.session import Session
from promising.server import open_calls
from promising.server.service import Service
from promising.settings import Auth, Limits, Settings
from promising.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    queries_pb2,
    queries_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
    summaries_pb2_grpc,
)

CREATE = "CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE, name VARCHAR) TIMESTAMP BY ts"
SUMMARISE = "CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 5)"
NOW = 100_000_000_000  # microseconds: whatever comes in, nothing ages out
MANY = "SELECT a.name, b.price FROM s AS a JOIN s AS b ON a.item = b.item"  # rows, of much()
NONE = "SELECT a.name FROM s AS a JOIN s AS b ON a.item = b.item WHERE a.price + b.price < 0"  # long, and no rows
EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
WAIT = 120  # seconds, so that a test that fails ends; none passes or fails by it
Result = TypeVar("Result")


@dataclass
class Remote:
    """A running server and all stubs to it."""

    service: Service
    channel: Any

    def __post_init__(self) -> None:
        self.streams: Any = streams_pb2_grpc.StreamServiceStub(self.channel)
        self.summaries: Any = summaries_pb2_grpc.SummaryServiceStub(self.channel)
        self.queries: Any = queries_pb2_grpc.QueryServiceStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self.channel)

    @property
    def session(self) -> Session:
        return self.service.session

    @property
    def stream(self) -> Stream:
        return self.session.stream("s")

    async def ingest(self, *requests: Any) -> list[Any]:
        """What became of each batch, all in one call."""
        return [response async for response in self.streams.Ingest(iter(requests), timeout=WAIT)]

    async def query(self, sql: str = "", **more: Any) -> list[Frame]:
        """All frames of an answer."""
        request = queries_pb2.QueryRequest(**({"sql": sql} if sql else {}) | more)
        return await frames(self.queries.Query(request, timeout=WAIT))

    async def stats(self) -> Any:
        return await self.admin.GetStats(admin_pb2.GetStatsRequest(), timeout=WAIT)

    async def open_queries(self) -> list[Any]:
        listed = await self.admin.ListQueries(admin_pb2.ListQueriesRequest(), timeout=WAIT)
        return list(listed.queries)

    async def well(self) -> None:
        """The server does what it is there for, and a query sees the tuples that are in.

        These may become more meanwhile: of a call that is gone, what was being added comes in.
        """
        before = self.stream.count
        (told,) = await self.ingest(batch(3))
        assert told.WhichOneof("outcome") == "appended", told
        assert told.appended.accepted == 3
        (row,) = (await self.query("SELECT count(*) AS n FROM s"))[-1].rows.to_pylist()
        assert before + 3 <= row["n"] <= self.stream.count


async def frames(call: Any) -> list[Frame]:
    """The frames of a call, put together from their parts."""
    parts = None
    found = []
    async for event in call:
        if parts is None:
            parts = wire.Frames(wire.table(event.opened.schema).schema)
        elif (frame := parts.add(event.frame)) is not None:
            found.append(frame)
    return found


@asynccontextmanager
async def serving(session: Session | None = None, tokens: Path | None = None, **limits: Any) -> AsyncIterator[Remote]:
    """A server with one stream `s` and a summary `items` on it, if the session is not given."""
    settings = Settings(listen="127.0.0.1:0", auth=Auth(tokens=tokens), limits=Limits(**{"workers": 2} | limits))
    service = Service(settings, stocked() if session is None else session)
    port = await service.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Remote(service, channel)
    finally:
        await service.stop()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to become so."""
    async with asyncio.timeout(WAIT):
        while not await holds():
            await asyncio.sleep(0.01)


async def idle(remote: Remote) -> None:
    """Nothing is open any more."""

    async def none() -> bool:
        told = await remote.stats()
        return bool(told.ingesting == 0 and told.queries == 0)

    await until(none)


class ReaderClock:
    """The clock by which readers are found slow. It goes on only when a test says so: on a busy machine, whoever reads
    as fast as it can would be slow by any other.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(open_calls, "time", self)

    def monotonic(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += 0.05


def stocked(rows: int = 10, values: int = 5) -> Session:
    """A session with a stream `s` of so many tuples, a second apart."""
    session = Session(clock=lambda: NOW, seed=7, written=spark_sql)
    session.execute(CREATE)
    session.execute(SUMMARISE)
    if rows:
        session.ingest("s", table(rows, values))
    return session


def much() -> Session:
    """A session in which `MANY` has nearly two thousand million rows, and `NONE` as many candidates."""
    return stocked(60_000, 2)


def run(body: Callable[..., Awaitable[Result]], **how: Any) -> Result:
    """Run a test's body with a server; `how` is as for `serving`."""

    async def inside() -> Result:
        async with serving(**how) as remote, asyncio.timeout(WAIT):
            return await body(remote)

    return asyncio.run(inside())


def table(rows: int, values: int = 5) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "ts": pa.array(1_000_000 * numbers, pa.int64()).cast(pa.timestamp("us")),
            "item": pa.array(numbers % values, pa.int64()),
            "price": pa.array(numbers, pa.float64()),
            "name": pa.array([f"n{i % values}" for i in range(rows)], pa.string()),
        }
    )


def batch(rows: int | pa.Table | bytes = 3, **more: Any) -> Any:
    """A request to ingest."""
    if isinstance(rows, int):
        rows = table(rows)
    data = rows if isinstance(rows, bytes) else wire.ipc(rows)
    return streams_pb2.IngestRequest(**{"stream": "s", "arrow": data} | more)


def reasons(told: list[Any]) -> list[Any]:
    """What became of each batch: why it was refused, or how many tuples were accepted."""
    return [one.refusal.reason or ("DUPLICATE" if one.appended.duplicate else one.appended.accepted) for one in told]


async def failed(call: Awaitable[Any]) -> Any:
    """The AioRpcError that a call ends with."""
    try:
        found = await call
    except grpc.aio.AioRpcError as problem:
        return problem
    raise AssertionError(f"no error, but {found}")


@dataclass
class Details:
    """What a status says beyond its code and message."""

    info: Any
    violations: dict[str, str]
    retry: float | None


def details(problem: Any) -> Details:
    """The rich details of an error, every one of which must be known and decode."""
    (packed,) = [value for key, value in problem.trailing_metadata() or () if key == wire_errors.DETAILS]
    status = status_pb2.Status.FromString(packed)
    assert status.code == problem.code().value[0]
    assert status.message == problem.details()
    found: dict[str, Any] = {}
    for detail in status.details:
        found[detail.TypeName()] = _unpacked(detail)
    info = found.pop("google.rpc.ErrorInfo")
    assert info.domain == "promising"
    assert info.reason in wire_errors.CLASSES
    bad = found.pop("google.rpc.BadRequest", None)
    retry = found.pop("google.rpc.RetryInfo", None)
    assert not found
    return Details(
        info,
        {} if bad is None else {v.field: v.description for v in bad.field_violations},
        None if retry is None else wire_times.seconds(retry.retry_delay),
    )


def _unpacked(detail: Packed) -> Any:
    made = getattr(error_details_pb2, detail.TypeName().removeprefix("google.rpc."))()
    assert detail.Unpack(made)
    return made
