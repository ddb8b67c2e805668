"""Thousands of callers at the same instant: how many get an answer, how many are told when to ask again, and whether
any gets something else. Over one connection, and over many.
"""

import asyncio
import time
from collections import Counter
from typing import Any

import grpc

from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import START, Host, hosting, retail
from promising import wire_errors
from promising.errors import LimitReached
from promising.testing import streams
from promising.v1 import common_pb2, queries_pb2, queries_pb2_grpc, summaries_pb2, summaries_pb2_grpc

TUPLES = 1 << 16
ITEMS = 40_000
PATIENCE = 300.0  # seconds; whoever waits longer counts as neither answered nor refused
KEYS = common_pb2.Keys(ints=range(10))


def run(report: Report, effort: Effort) -> None:
    callers = 200 if effort.quick else 2_000
    figures = []
    with hosting("service") as host:
        with host.session() as session:
            retail(session, "a", TUPLES, "10 MINUTES")
            session.ingest("a", streams.zipf(TUPLES, ITEMS, 1.0, seed=1, start=START, rate=10_000.0))
        for connections in (1, 100):
            took, ends = asyncio.run(_all(host, callers, connections))
            sizes: dict[str, int | float | str] = {"callers": callers, "connections": connections}
            figures += [
                Figure("calls", callers / took, unit="1/s", sizes=sizes),
                Figure("answered", float(ends["answered"]), unit="calls", sizes=sizes),
                Figure("told when to ask again", float(ends["refused"]), unit="calls", sizes=sizes),
                Figure("neither", float(ends["neither"]), unit="calls", goal="<= 0", sizes=sizes),
            ]
    report.part("callers", "so many calls at once: queries, probes, estimates and statements", figures)


async def _all(host: Host, callers: int, connections: int) -> tuple[float, Counter[str]]:
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(host.target, own) for _ in range(connections)]
    began = time.perf_counter()
    ends = await asyncio.gather(*(_end(_call(channels[n % connections], n)) for n in range(callers)))
    took = time.perf_counter() - began
    for channel in channels:
        await channel.close(None)
    return took, Counter(ends)


def _call(channel: grpc.aio.Channel, number: int) -> Any:
    queries: Any = queries_pb2_grpc.QueryServiceStub(channel)
    summaries: Any = summaries_pb2_grpc.SummaryServiceStub(channel)
    match number % 4:
        case 0:
            return queries.Query(queries_pb2.QueryRequest(sql="SELECT count(*) AS n FROM a"), timeout=PATIENCE)
        case 1:
            return queries.Probe(queries_pb2.ProbeRequest(summary="a_items", keys=KEYS), timeout=PATIENCE)
        case 2:
            return summaries.Estimate(summaries_pb2.EstimateRequest(summary="a_items", keys=KEYS), timeout=PATIENCE)
        case _:
            return queries.Execute(queries_pb2.ExecuteRequest(sql="SHOW STREAMS"), timeout=PATIENCE)


async def _end(call: Any) -> str:
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as problem:
        told = wire_errors.from_rpc_error(problem)
        return "refused" if isinstance(told, LimitReached) and told.retry_seconds is not None else "neither"
    return "answered"
