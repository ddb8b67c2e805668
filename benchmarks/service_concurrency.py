"""Many queries at the same time: how much gets done, and how evenly.

So many clients ask the same question at once, and each asks anew until its turns are up. Fairness is told by Jain's
index, (sum x)^2 / (n sum x^2): 1 if all got the same, 1/n if one got all; over the CPU time that each query was given,
the rows it brought, and the time it took. And by the slowest query against the median.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

import grpc
import numpy as np

from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import START, Host, hosting, retail
from benchmarks.service_ingest import ITEMS, RATE
from promising import wire_times
from promising.testing import streams
from promising.v1 import queries_pb2

QUERY = "/promising.v1.QueryService/Query"
AT_ONCE = (1, 16, 256)
ROUNDS = 4  # of which the first does not count
BUDGET = 0.02
"""Seconds of CPU time of a join."""
COUNTS = "SUMMARY.Estimate.Count(a.item_id), SUMMARY.Estimate.Count(b.item_id)"
PAIRED = "a.item_id = b.item_id AND a.store_id = 3 AND b.store_id = 5"  # one pair in 64, so that work is more than rows
ASKED = {
    "join": f"SELECT a.item_id, a.price, b.ts FROM a, b WHERE {PAIRED} WITH PREFERENCE DESC {COUNTS}",
    "selection": "SELECT ts, store_id, price FROM a WHERE item_id = 1000",
}


@dataclass(frozen=True)
class Answered:
    """What one query came to."""

    seconds: float
    cpu: float
    rows: int


def run(report: Report, effort: Effort) -> None:
    sizes = (1 << 16, 1 << 18) if effort.quick else (250_000, 2_000_000)
    asked = 16 if effort.quick else 256
    for size in sizes:
        with hosting("service") as host, asyncio.Runner() as runner:
            _fill(host, size)
            for sql in ASKED.values():  # what a process loads once, it has loaded, and come to rest
                runner.run(_round(host, sql, 16, 1))
            host.holds()
            for kind, sql in ASKED.items():
                figures = []
                for clients in AT_ONCE:
                    turns = max(1, asked // clients)
                    rounds = [runner.run(_round(host, sql, clients, turns)) for _ in range(ROUNDS)][1:]
                    figures += _told(rounds, {"tuples": size, "at once": clients})
                title = f"{kind}, budget {BUDGET * 1e3:g} ms" if kind == "join" else kind
                report.part("concurrency", f"{title}, {size:,} tuples", figures)


def _fill(host: Host, size: int) -> None:
    with host.session() as session:
        for seed, name in enumerate("ab"):
            retail(session, name, size, "10 MINUTES")
            session.ingest(name, streams.zipf(size, ITEMS, 1.0, seed=seed, start=START, rate=RATE))


def _told(rounds: list[tuple[float, list[Answered]]], sizes: dict[str, int | float | str]) -> list[Figure]:
    """Medians over the rounds."""

    def median(figure: list[float]) -> float:
        return statistics.median(figure)

    figures = [
        Figure("queries", median([len(all_) / wall for wall, all_ in rounds]), unit="1/s", sizes=sizes),
        Figure("rows", median([sum(a.rows for a in all_) / wall for wall, all_ in rounds]), unit="1/s", sizes=sizes),
        Figure("time, median", median([_times(all_)[0] for _, all_ in rounds]) * 1e3, unit="ms", sizes=sizes),
    ]
    if sizes["at once"] == 1:
        return figures
    for what in ("cpu", "rows", "seconds"):
        index = median([jain([getattr(a, what) for a in all_]) for _, all_ in rounds])
        figures.append(Figure(f"Jain's index of {'time' if what == 'seconds' else what}", index, sizes=sizes))
    slowest = median([_times(all_)[1] / _times(all_)[0] for _, all_ in rounds])
    figures.append(Figure("slowest against median", slowest, sizes=sizes))
    return figures


def jain(shares: list[float]) -> float:
    """1 if all shares are the same, 1/n if one has all.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    total = sum(shares)
    return total * total / (len(shares) * sum(s * s for s in shares)) if total else 1.0


def _times(answers: list[Answered]) -> tuple[float, float]:
    """The median and the longest."""
    times = [a.seconds for a in answers]
    return float(np.median(times)), max(times)


async def _round(host: Host, sql: str, clients: int, turns: int) -> tuple[float, list[Answered]]:
    """Seconds by the wall clock until all have their answers, and these."""
    request = queries_pb2.QueryRequest(sql=sql, budget=wire_times.duration(BUDGET), seed=1)
    async with grpc.aio.insecure_channel(host.target, [("grpc.max_receive_message_length", -1)]) as channel:
        await channel.channel_ready()
        ask = channel.unary_stream(
            QUERY,
            request_serializer=queries_pb2.QueryRequest.SerializeToString,
            response_deserializer=queries_pb2.QueryResponse.FromString,
        )

        async def client() -> list[Answered]:
            return [await _query(ask(request)) for _ in range(turns)]

        before = time.perf_counter()
        answers = await asyncio.gather(*(client() for _ in range(clients)))
        return time.perf_counter() - before, [a for each in answers for a in each]


async def _query(call: "grpc.aio.UnaryStreamCall[queries_pb2.QueryRequest, queries_pb2.QueryResponse]") -> Answered:
    """Read one answer to its end; the rows stay as they came."""
    before = time.perf_counter()
    cpu, rows = 0.0, 0
    async for response in call:
        if response.frame.HasField("progress"):
            cpu, rows = response.frame.progress.cpu_seconds, int(response.frame.progress.rows)
    return Answered(time.perf_counter() - before, cpu, rows)
