"""Tuples in, over the wire: Arrow against the same bytes sent to a handler that does nothing with them, and against the
same tuples as messages, row by row.

What is timed is the wall time of a whole call, from the first message to the last answer, several messages in flight.
The client sends what was serialised before. Client and server share the machine, so what one of them wastes the other
lacks.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import grpc
import pyarrow as pa

from benchmarks.harness import Clock, Contender, Effort, Figure, Report, alternate
from benchmarks.service_host import START, Host, hosting, retail
from benchmarks.service_rivals import INGEST_ROWS, row_messages
from promising import wire
from promising.testing import streams
from promising.v1 import streams_pb2

WALL: Clock = time.perf_counter_ns
IN_FLIGHT = 8  # messages
OVERHEAD = 700  # bytes of a message beside its tuples
WIDTH = 40  # bytes of a tuple
ITEMS, EXPONENT, RATE = 40_000, 1.1, 10_000.0
INGEST = "/promising.v1.StreamService/Ingest"
SHARE, TIMES = ">= 0.5", ">= 5"


def run(report: Report, effort: Effort) -> None:
    lengths = (1 << 16, 1 << 18) if effort.quick else (1_000_000, 4_000_000)
    figures = []
    with hosting("service") as ours, hosting("empty") as empty, hosting("rows") as rows:
        for length in lengths:
            for size in (64, 256, 1024):
                # Row by row is slow enough to be measured on the shorter stream.
                rival = rows if length == lengths[0] else None
                figures += _compare(ours, empty, rival, length, size << 10, effort.rounds)
    report.part("ingest", "Arrow over gRPC, several messages in flight", figures)


def _compare(ours: Host, empty: Host, rows: Host | None, length: int, size: int, rounds: int) -> list[Figure]:
    each = (size - OVERHEAD) // WIDTH
    table = tuples(length)
    arrow = [request(table.slice(i, each), i // each + 1) for i in range(0, length, each)]
    spent: dict[str, list[float]] = {}

    def contender(name: str, host: Host, method: str, messages: list[bytes], fresh: Callable[[], None]) -> Contender:
        def prepare() -> Callable[[], None]:
            fresh()
            before = host.cpu()

            def send() -> None:
                transfer(host.channel, method, messages)
                spent.setdefault(name, []).append(host.cpu() - before)

            return send

        return prepare

    def new_stream() -> None:
        with ours.session() as session:
            retail(session, "sales", length)

    contenders = {
        "arrow": contender("arrow", ours, INGEST, arrow, new_stream),
        "empty": contender("empty", empty, INGEST, arrow, lambda: None),
    }
    if rows is not None:
        rowwise = [row_request(table.slice(i, each), i // each + 1) for i in range(0, length, each)]
        contenders["rows"] = contender("rows", rows, INGEST_ROWS, rowwise, lambda: new_rows(rows, length))
    took = alternate(contenders, rounds, WALL)
    rate = {name: length / nanoseconds * 1e3 for name, nanoseconds in took.items()}
    cpu = {name: statistics.median(seconds[1:]) / length * 1e9 for name, seconds in spent.items()}
    sizes: dict[str, int | float | str] = {"tuples": length, "KiB": size >> 10, "rows": each}
    found = [
        Figure("wall", rate["arrow"], rate["empty"], "same bytes to an empty handler", "M rows/s", SHARE, sizes),
        Figure("CPU of the server", cpu["arrow"], cpu["empty"], "same bytes to an empty handler", "ns/row", "", sizes),
    ]
    if rows is not None:
        found.append(Figure("wall", rate["arrow"], rate["rows"], "row-wise messages", "M rows/s", TIMES, sizes))
        found.append(Figure("CPU of the server", cpu["arrow"], cpu["rows"], "row-wise messages", "ns/row", "", sizes))
    return found


# --- messages --------------------------------------------------------------------------------------------------------


def tuples(n: int) -> pa.Table:
    """Retail tuples as a stream takes them."""
    columns = streams.zipf(n, ITEMS, EXPONENT, seed=1, start=START, rate=RATE)
    return pa.table({**columns, "ts": pa.array(columns["ts"], pa.timestamp("us"))})


def request(table: pa.Table, sequence: int, stream: str = "sales") -> bytes:
    made = streams_pb2.IngestRequest(stream=stream, producer_id="till", sequence=sequence, arrow=wire.ipc(table))
    return made.SerializeToString()


def row_request(table: pa.Table, sequence: int) -> bytes:
    kinds = row_messages()
    columns = [table[n].cast(pa.int64()).to_pylist() for n in ("store_id", "transaction_id", "ts", "item_id")]
    rows = [
        kinds.Row(store_id=store, transaction_id=basket, ts=at, item_id=item, price=price)
        for store, basket, at, item, price in zip(*columns, table["price"].to_pylist(), strict=True)
    ]
    made = kinds.Rows(stream="sales", producer_id="till", sequence=sequence, rows=rows)
    data: bytes = made.SerializeToString()
    return data


def new_rows(host: Host, length: int) -> None:
    """A new stream at the server that takes rows."""
    transfer(host.channel, INGEST_ROWS, [row_messages().Rows(stream="sales", create=length).SerializeToString()])


# --- sending ---------------------------------------------------------------------------------------------------------


def transfer(channel: grpc.Channel, method: str, messages: Iterable[bytes]) -> None:
    """Send the messages in one call, `IN_FLIGHT` of them ahead of their answers; every one must be taken."""
    free = threading.Semaphore(IN_FLIGHT)
    sent = answered = 0

    def paced() -> Iterator[bytes]:
        nonlocal sent
        for message in messages:
            free.acquire()
            sent += 1
            yield message

    call = channel.stream_stream(method, bytes, streams_pb2.IngestResponse.FromString)
    for response in call(paced()):
        if not response.HasField("appended") or response.appended.refused:
            raise RuntimeError(f"not taken as a whole: {response}")
        answered += 1
        free.release()
    if answered < sent:
        raise RuntimeError(f"{answered} of {sent} messages were answered")
