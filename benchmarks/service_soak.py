"""What stays behind: after query streams that were cancelled at all moments, after readers that do not read, and after
thousands of connections.

The service has done a tenth of the streams, or 1,000, and has had as many readers at once before the first look: what
it loads once, and what it takes to have so many calls open at all, is not counted. Then its resident memory, threads
and open files are read off from outside, at rest, before and after.
"""

import asyncio
import contextlib
import random
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import grpc
import psutil

from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_concurrency import COUNTS, QUERY
from benchmarks.service_host import START, Held, Host, hosting, retail
from benchmarks.service_ingest import RATE
from promising.testing import streams
from promising.v1 import admin_pb2, admin_pb2_grpc, common_pb2, queries_pb2, summaries_pb2, summaries_pb2_grpc

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
TUPLES, ITEMS = 20_000, 500
PATIENCE = 2.0
"""Seconds after which the service cuts a reader that does not read."""
AT_ONCE = 32  # cancelled streams under way
CHANNELS = 10  # connections of the readers that do not read
POINTS = 10
GROWTH = 1.05
LIMITS = {
    "max_queries": 2048,
    "max_queries_per_client": 2048,
    "slow_reader_seconds": PATIENCE,
    "max_connections": 12_000,
}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty settings

JOIN = "SELECT a.item_id, a.price, b.price FROM a, b WHERE a.item_id = b.item_id"
KINDS = (
    JOIN,
    f"{JOIN} WITH PREFERENCE DESC {COUNTS}",
    f"{JOIN} WITH PREFERENCE WEIGHTED {COUNTS}",
    "SELECT * FROM a WHERE price < 10 ORDER BY price",
    "SELECT count(*), avg(a.price) FROM a, b WHERE a.item_id = b.item_id WITH ERROR 0.001",
)


def run(report: Report, effort: Effort) -> None:
    cancelled, readers, connections = (2_000, 50, 500) if effort.quick else (100_000, 1_000, 10_000)
    # One loop for all: grpc.aio does not like to change them.
    with hosting("service", limits=LIMITS) as host, asyncio.Runner() as runner:
        with host.session() as session:
            for seed, name in enumerate("ab"):
                retail(session, name, TUPLES, "10 MINUTES")
                session.ingest(name, streams.zipf(TUPLES, ITEMS, seed=seed, start=START, rate=RATE))
        warm = max(cancelled // 10, 1000)
        runner.run(_cancel(host, warm))
        _tell(f"{warm:,} streams cancelled before the first look", host)
        fresh = host.holds()
        _ignore(host, readers)
        before = host.holds(fresh)
        _tell(f"{readers:,} readers cut before the first look", host)
        points = []
        for tenth in range(1, POINTS + 1):
            runner.run(_cancel(host, cancelled // POINTS))
            points.append(host.resident())
            _tell(f"{cancelled // POINTS * tenth:,} of {cancelled:,} streams cancelled", host)
        middle = host.holds(before)
        highest, cut = _ignore(host, readers)
        after = host.holds(before)
        _tell(f"{readers:,} readers cut", host)
        shown = "  ".join(f"{p / 1e6:.1f}" for p in points)
        print(f"\nresident MB before: {before.resident / 1e6:.1f}; after each tenth of the cancelled streams: {shown}")
        sizes: dict[str, int | float | str] = {"of them": readers}
        figures = [
            *_compared("cancelled streams", before, middle, cancelled),
            *_compared("slow readers, too", before, after, readers),
            Figure("most memory, a reader", _each(highest, middle, readers), unit="MB", sizes=sizes),
            Figure(
                "memory, first readers",
                before.resident / 1e6,
                fresh.resident / 1e6,
                "before them",
                "MB",
                f"<= {GROWTH}",
                sizes,
            ),
            Figure("readers told why", cut, readers / 2, "those who read on", "", ">= 1", sizes),
        ]
        report.part("soak", "resident memory, threads and files, before and after", figures)
        report.part("soak", "connections that say nothing", _connect(host, connections))


def _tell(done: str, host: Host) -> None:
    """How far it is: the whole takes a quarter of an hour."""
    print(f"soak: {done}; {host.resident() / 1e6:.0f} MB resident", file=sys.stderr, flush=True)


def _each(highest: int, before: Held, readers: int) -> float:
    return max(highest - before.resident, 0) / readers / 1e6


def _compared(what: str, before: Held, after: Held, count: int) -> list[Figure]:
    sizes: dict[str, int | float | str] = {"of them": count}
    return [
        Figure(f"memory, {what}", after.resident / 1e6, before.resident / 1e6, "before", "MB", f"<= {GROWTH}", sizes),
        Figure(f"threads, {what}", after.threads, before.threads, "before", "", "<= 1", sizes),
        Figure(f"files, {what}", after.files, before.files, "before", "", "<= 1", sizes),
    ]


# --- streams ---------------------------------------------------------------------------------------------------------


def asking(channel: grpc.aio.Channel) -> Callable[[queries_pb2.QueryRequest], Any]:
    return channel.unary_stream(
        QUERY,
        request_serializer=queries_pb2.QueryRequest.SerializeToString,
        response_deserializer=queries_pb2.QueryResponse.FromString,
    )


async def _cancel(host: Host, count: int) -> None:
    """Ask and cancel: at once, before the plan is made, after it, after the first frame, after some."""
    rng = random.Random(count)
    numbers = iter(range(count))
    async with grpc.aio.insecure_channel(host.target) as channel:
        ask = asking(channel)

        async def client() -> None:
            for number in numbers:
                call = ask(queries_pb2.QueryRequest(sql=KINDS[number % len(KINDS)], seed=number))
                moment = rng.randrange(6)
                if moment == 1:
                    await asyncio.sleep(rng.random() * 0.01)
                for _ in range(max(0, moment - 1)):
                    if await call.read() is EOF:
                        break
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call.code()

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))


def _ignore(host: Host, count: int) -> tuple[int, int]:
    """Ask and do not read, until all are cut. Then half of them read on, and half are gone, with their process.

    Returns the most memory that was in use, and how many of those who read on were told why.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_ignoring, host.target, host.pid, count).result()


def _ignoring(target: str, pid: int, count: int) -> tuple[int, int]:
    return asyncio.run(_slow(target, psutil.Process(pid), count))


async def _slow(target: str, server: psutil.Process, count: int) -> tuple[int, int]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.aio.insecure_channel(target, options) for _ in range(CHANNELS)]
    request = queries_pb2.QueryRequest(sql=JOIN)
    calls = [asking(channels[i % CHANNELS])(request) for i in range(count)]
    await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)  # some may have been cut already
    admin = admin_pb2_grpc.AdminServiceStub(channels[0])
    highest = 0
    until = time.monotonic() + 60 + PATIENCE
    while time.monotonic() < until:
        stats = await admin.GetStats(admin_pb2.GetStatsRequest())
        highest = max(highest, server.memory_info().rss)
        if not stats.queries:
            break
        await asyncio.sleep(0.1)
    ends = await asyncio.gather(*(_read_on(call) for call in calls[::2]))
    return highest, ends.count(grpc.StatusCode.RESOURCE_EXHAUSTED)


async def _read_on(call: Any) -> grpc.StatusCode:
    try:
        while await call.read() is not EOF:
            pass
    except grpc.aio.AioRpcError as problem:
        return problem.code()
    return grpc.StatusCode.OK


# --- connections -----------------------------------------------------------------------------------------------------


def _connect(host: Host, count: int) -> list[Figure]:
    """Connections that greet and then say nothing."""
    address, _, port = host.target.rpartition(":")
    before = host.holds()
    started = time.perf_counter()
    sockets = []
    for _ in range(count):
        made = socket.create_connection((address, int(port)), 30)
        made.sendall(PREFACE)
        sockets.append(made)
    answered = sum(bool(made.recv(9)) for made in sockets)
    took = time.perf_counter() - started
    during = host.holds()
    asked = [_asked(host) for _ in range(100)]
    for made in sockets:
        made.close()
    after = host.holds(before)
    sizes: dict[str, int | float | str] = {"of them": count}
    each = (during.resident - before.resident) / count / 1e3
    return [
        Figure("greeted back", answered, count, "connections", "", ">= 1", sizes),
        Figure("connected and greeted", count / took, unit="1/s", sizes=sizes),
        Figure("memory of one", each, unit="kB", sizes=sizes),
        Figure("memory meanwhile", during.resident / 1e6, before.resident / 1e6, "before", "MB", "", sizes),
        Figure("memory when they are gone", after.resident / 1e6, before.resident / 1e6, "before", "MB", "", sizes),
        Figure("estimate meanwhile, median", sorted(asked)[len(asked) // 2] * 1e3, unit="ms", sizes=sizes),
        Figure("threads when they are gone", after.threads, before.threads, "before", "", "<= 1", sizes),
        Figure("files when they are gone", after.files, before.files, "before", "", "<= 1", sizes),
    ]


def _asked(host: Host) -> float:
    """Seconds that an estimate takes."""
    request = summaries_pb2.EstimateRequest(summary="a_items", keys=common_pb2.Keys(ints=[1]))
    before = time.perf_counter()
    summaries_pb2_grpc.SummaryServiceStub(host.channel).Estimate(request, timeout=30)
    return time.perf_counter() - before
