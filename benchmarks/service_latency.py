"""How long an estimate takes while tuples come in at half the rate the service can take, against the same when it is
idle.

Tuples come from a process of their own, into a stream whose tuples age out, so that it neither grows nor empties. Its
greatest rate is measured first. Then idle and busy spells alternate; one question after the other is asked, each timed
by the wall clock, and a question of 100 keys follows each of one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection

import grpc
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import START, Host, connected, hosting, retail
from benchmarks.service_ingest import INGEST, ITEMS, RATE, WIDTH, request, transfer, tuples
from promising.v1 import common_pb2, summaries_pb2, summaries_pb2_grpc

BATCH = (256 << 10) // WIDTH  # tuples of a message
KEPT = 1_500_000  # more than the stream below keeps at `RATE`
TURN = 1 << 18  # tuples that the feed repeats, at later and later times
KEYS = (1, 100)


def run(report: Report, effort: Effort) -> None:
    spells, questions, seconds = (2, 300, 1.0) if effort.quick else (5, 3000, 5.0)
    figures = []
    with hosting("service") as host:
        with host.session() as session:
            retail(session, "sales", KEPT, "10 SECONDS", "80 SECONDS")
        with _feeding(host) as feed:
            for _ in range(2):  # the first time fills what the summary keeps
                feed.send(("free", seconds))
                most = feed.recv()
            idle: dict[int, list[float]] = {keys: [] for keys in KEYS}
            busy: dict[int, list[float]] = {keys: [] for keys in KEYS}
            took = []
            for _ in range(spells):
                _ask(host, questions, idle)
                feed.send(("paced", most / 2))
                time.sleep(0.5)
                before = time.perf_counter(), host.cpu()
                _ask(host, questions, busy)
                took.append((host.cpu() - before[1]) / (time.perf_counter() - before[0]))
                feed.send(("stop", 0))
                reached = feed.recv()
        figures.append(Figure("ingest alone", most / 1e6, unit="M rows/s", sizes={"rows": BATCH}))
        figures.append(Figure("ingest meanwhile", reached / 1e6, most / 1e6, "alone", "M rows/s", "", {"rows": BATCH}))
        figures.append(Figure("CPU of the server", float(np.median(took)), unit="cores", sizes={"rows": BATCH}))
        for keys in KEYS:
            sizes: dict[str, int | float | str] = {"keys": keys, "questions": len(busy[keys])}
            for share in (0.5, 0.99):
                ours, theirs = (float(np.quantile(times[keys], share)) * 1e3 for times in (busy, idle))
                figures.append(Figure(f"p{share * 100:g}", ours, theirs, "on an idle server", "ms", "", sizes))
    report.part("latency", "Estimate while tuples come in at half the greatest rate", figures)


def _ask(host: Host, questions: int, into: dict[int, list[float]]) -> None:
    rng = np.random.default_rng(3)
    stub = summaries_pb2_grpc.SummaryServiceStub(host.channel)
    for at in range(questions + 20):
        for size, times in into.items():
            drawn = common_pb2.Keys(ints=rng.integers(0, ITEMS, size).tolist())
            asked = summaries_pb2.EstimateRequest(summary="sales_items", keys=drawn)
            before = time.perf_counter()
            stub.Estimate(asked, timeout=30)
            if at >= 20:  # the first ones find nothing warm
                times.append(time.perf_counter() - before)


# --- the feed --------------------------------------------------------------------------------------------------------


@contextmanager
def _feeding(host: Host) -> Iterator[Connection]:
    """A process that sends tuples when told to."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_feed, args=(host.target, theirs), daemon=True)
    process.start()
    try:
        yield mine
    finally:
        mine.send(("end", 0))
        process.join(30)


def _feed(target: str, told: Connection) -> None:
    """Commands: "free" seconds: as fast as it can, answers with the rate. "paced" rate: until "stop", which is answered
    with the rate it kept. "end".
    """
    channel = connected(target)
    batches = _endless()
    while True:
        command, figure = told.recv()
        if command == "end":
            break
        if command in ("free", "paced"):
            sent = _send(channel, batches, told, figure, command == "free")
            told.send(sent)
    channel.close()


def _send(channel: grpc.Channel, batches: Iterator[bytes], told: Connection, figure: float, free: bool) -> float:
    """Send for `figure` seconds, or at the rate `figure` until there is a command; returns the rate."""
    started = time.perf_counter()
    sent = 0

    def paced() -> Iterator[bytes]:
        nonlocal sent
        while not sent or (time.perf_counter() - started < figure if free else not told.poll()):
            yield next(batches)
            sent += BATCH
            if not free:
                time.sleep(max(0.0, started + sent / figure - time.perf_counter()))

    transfer(channel, INGEST, paced())
    took = time.perf_counter() - started
    if not free:
        told.recv()
    return sent / took


def _endless() -> Iterator[bytes]:
    """The same tuples over and over, each time as many seconds later as they span."""
    table = tuples(TURN)
    place = table.schema.get_field_index("ts")
    times: NDArray[np.int64] = table["ts"].cast(pa.int64()).to_numpy() - START
    span = int(TURN / RATE * 1e6) + 1_000_000
    for turn in count():
        later = pa.array(times + (START + turn * span), pa.timestamp("us"))
        moved = table.set_column(place, "ts", later)
        for first in range(0, TURN - BATCH + 1, BATCH):
            yield request(moved.slice(first, BATCH), turn * TURN + first + 1)
