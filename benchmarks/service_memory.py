"""256 clients at once that want more memory than there is: self-joins, sorted, grouped and counted.

A canary asks for the rows of one key meanwhile, from its own process. The service's resident memory is read off from
outside; the limit is compared with what it grows by, the canary's times with those on the idle service, and the memory
afterwards with that after some such queries before.
"""

import asyncio
import contextlib
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import grpc

from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import START, Host, hosting, retail
from benchmarks.service_ingest import RATE
from benchmarks.service_soak import EOF, asking
from promising.testing import streams
from promising.v1 import admin_pb2, admin_pb2_grpc, queries_pb2

CLIENTS = 256
JOIN = "FROM a, b WHERE a.item_id = b.item_id"
KINDS = (
    f"SELECT a.transaction_id, b.transaction_id, a.price {JOIN} ORDER BY a.price",
    f"SELECT a.price, b.price {JOIN} ORDER BY a.price, b.price DESC LIMIT 3 BY price",
    f"SELECT a.transaction_id, b.transaction_id, count(*) {JOIN} GROUP BY a.transaction_id, b.transaction_id",
    f"SELECT count(DISTINCT a.price * 1000 + b.price), median(a.price + b.price) {JOIN}",
)
CANARY = "SELECT price FROM a WHERE item_id = 7 ORDER BY price LIMIT 10"
EVERY = 0.02  # seconds between two questions of the canary
IDLE = 200  # questions on the idle service
Outcomes = Counter[str]


def run(report: Report, effort: Effort) -> None:
    tuples, limit = (2_000, 256 << 20) if effort.quick else (5_000, 1 << 30)
    limits = {
        "max_query_bytes_total": limit,
        "max_query_bytes_per_client": limit,
        "max_query_bytes": limit // 8,
        "max_queries_per_client": 2 * CLIENTS,
    }
    with tempfile.TemporaryDirectory() as data, hosting("service", data=data, limits=limits) as host:
        with host.session() as session:
            for seed, name in enumerate("ab"):
                retail(session, name, tuples, "10 MINUTES")
                session.ingest(name, streams.zipf(tuples, tuples // 10, seed=seed, start=START, rate=RATE))
        context = get_context("spawn")
        with (
            context.Manager() as manager,
            ProcessPoolExecutor(1, mp_context=context) as attackers,
            ProcessPoolExecutor(1, mp_context=context) as watcher,
        ):
            attackers.submit(_attack, host.target, CLIENTS // 8).result()  # what first queries load is not counted
            before = host.holds().resident
            idle = watcher.submit(_canary, host.target, IDLE).result()
            attack = attackers.submit(_attack, host.target, CLIENTS)
            canary = watcher.submit(_canary, host.target, 0, ended := manager.Event())
            highest, counted = _watch(host, attack)
            ended.set()
            outcomes, seconds = attack.result()
            during = canary.result()
        after = host.holds().resident
    print(f"outcomes: {dict(outcomes)} in {seconds:.1f} s; {len(during)} questions of the canary meanwhile")
    sizes: dict[str, int | float | str] = {"clients": CLIENTS, "tuples": tuples, "limit MB": limit >> 20}
    report.part(
        "memory",
        "256 clients that want more memory than there is",
        [
            Figure("memory, over that before", (highest - before) / 1e6, limit / 1e6, "limit", "MB", "<= 1.1", sizes),
            Figure("memory, as counted", counted / 1e6, limit / 1e6, "limit", "MB", "<= 1.1", sizes),
            Figure("memory afterwards", after / 1e6, before / 1e6, "before", "MB", "<= 1.05", sizes),
            Figure("canary, p99", _p99(during) * 1e3, _p99(idle) * 1e3, "idle", "ms", "<= 10", sizes),
            Figure("ended with an answer or a limit", _typed(outcomes), CLIENTS, "clients", "", ">= 1", sizes),
            Figure("ended with an answer", outcomes["OK"], CLIENTS, "clients", "", "", sizes),
        ],
    )


def _typed(outcomes: Outcomes) -> int:
    return outcomes["OK"] + outcomes["RESOURCE_EXHAUSTED"]


def _p99(times: list[float]) -> float:
    return sorted(times)[max(math.ceil(0.99 * len(times)) - 1, 0)]


def _watch(host: Host, attack: "Future[tuple[Outcomes, float]]") -> tuple[int, int]:
    """The most memory until the attack has ended, and the most that the service counted."""
    highest = counted = 0
    admin = admin_pb2_grpc.AdminServiceStub(host.channel)
    while not attack.done():
        counted = max(counted, admin.GetStats(admin_pb2.GetStatsRequest(), timeout=60).query_bytes)
        for _ in range(10):
            highest = max(highest, host.resident())
            time.sleep(0.01)
    return highest, counted


def _attack(target: str, clients: int) -> tuple[Outcomes, float]:
    """All at once, each on a connection of its own. How they ended, and the seconds until the last had."""
    return asyncio.run(_clients(target, clients))


async def _clients(target: str, clients: int) -> tuple[Outcomes, float]:
    async def client(number: int) -> str:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(target, options) as channel:
            call = asking(channel)(queries_pb2.QueryRequest(sql=KINDS[number % len(KINDS)]))
            try:
                while await call.read() is not EOF:
                    pass
            except grpc.aio.AioRpcError as problem:
                return problem.code().name
            return "OK"

    began = time.monotonic()
    ended = await asyncio.gather(*(client(number) for number in range(clients)))
    return Counter(ended), time.monotonic() - began


def _canary(target: str, count: int, ended: "threading.Event | None" = None) -> list[float]:
    """Seconds of each question: so many, or until the event."""
    return asyncio.run(_questions(target, count, ended.is_set if ended is not None else lambda: False))


async def _questions(target: str, count: int, ended: Callable[[], bool]) -> list[float]:
    times: list[float] = []
    async with grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = asking(channel)
        while not (len(times) >= count if count else ended() and times):
            began = time.perf_counter()
            call = ask(queries_pb2.QueryRequest(sql=CANARY))
            with contextlib.suppress(grpc.aio.AioRpcError):  # refused, which takes its time, too
                while await call.read() is not EOF:
                    pass
            times.append(time.perf_counter() - began)
            await asyncio.sleep(EVERY)
    return times
