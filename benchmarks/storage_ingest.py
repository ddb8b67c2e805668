"""Tuples in, each batch on the disk before it is acknowledged: against a program that writes the same bytes to a file
and syncs it after each batch, which is what the disk can do; and through the service, durable against in memory.

Wall time, since the disk's is not CPU time. Four producers share what a sync costs; the opponent is one writer.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import service_ingest, storage_data
from benchmarks.harness import Clock, Contender, Effort, Figure, Report, alternate
from benchmarks.service_host import Host, hosting, retail
from benchmarks.storage_data import WIDTH
from promising.index.storage.store import Store

WALL: Clock = time.perf_counter_ns
SHARE = ">= 0.5"


def run(report: Report, effort: Effort) -> None:
    total = (4 << 20) if effort.quick else (128 << 20)
    figures = []
    with storage_data.folder() as folder:
        for size in (64 << 10, 256 << 10, 1 << 20):
            for producers in (1, 4):
                figures.append(_compare(folder, total, size, producers, effort.rounds))
    report.part("ingest", "durable batches against write and fdatasync of the same bytes", figures)


def _compare(folder: Path, total: int, size: int, producers: int, rounds: int) -> Figure:
    tuples = total // WIDTH
    batches = list(storage_data.batches(tuples, size // WIDTH))
    raw = [b"".join(column.tobytes() for column in batch.values()) for batch in batches]
    took = alternate({"ours": _ours(folder, batches, tuples, producers), "plain": _plain(folder, raw)}, rounds, WALL)
    rate = {name: total / nanoseconds * 1e9 / 1e6 for name, nanoseconds in took.items()}
    sizes: dict[str, int | float | str] = {"KiB": size >> 10, "producers": producers, "tuples": tuples}
    return Figure("ingest", rate["ours"], rate["plain"], "write and fdatasync", "MB/s", SHARE, sizes)


def _ours(folder: Path, batches: list[dict[str, Any]], tuples: int, producers: int) -> Contender:
    def prepare() -> Callable[[], None]:
        shutil.rmtree(folder / "store", ignore_errors=True)
        store = Store.open(folder / "store", seed=1)
        stream = storage_data.make(store, tuples)

        def produce(first: int) -> None:
            for number in range(first, len(batches), producers):
                stream.append(batches[number], producer=f"till {first}", sequence=number + 1)

        def send() -> None:
            if producers == 1:
                produce(0)
            else:
                threads = [threading.Thread(target=produce, args=(first,)) for first in range(producers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

        return _then(send, store.close)

    return prepare


def _plain(folder: Path, raw: list[bytes]) -> Contender:
    def prepare() -> Callable[[], None]:
        path = folder / "plain"
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def write() -> None:
            for batch in raw:
                os.write(handle, batch)
                os.fdatasync(handle)

        return _then(write, lambda: os.close(handle))

    return prepare


class _then:
    """What is timed, and what is done when it is let go of, which is not."""

    def __init__(self, timed: Callable[[], None], after: Callable[[], None]) -> None:
        self._timed = timed
        self._after = after

    def __call__(self) -> None:
        self._timed()

    def __del__(self) -> None:
        self._after()


# --- through the service ---------------------------------------------------------------------------------------------


def run_wire(report: Report, effort: Effort) -> None:
    length = 1 << 16 if effort.quick else 2_000_000
    figures: list[Figure] = []
    with _durable() as durable, hosting("service") as memory:
        for size in (64, 256, 1024):
            figures += _through(durable, memory, length, size << 10, effort.rounds)
    report.part(
        "wire", "Arrow over gRPC, several messages in flight: durable before the answer, and in memory", figures
    )


@contextmanager
def _durable() -> Iterator[Host]:
    with storage_data.folder() as folder, hosting("service", data=str(folder / "store")) as host:
        yield host


def _through(durable: Host, memory: Host, length: int, size: int, rounds: int) -> list[Figure]:
    each = (size - service_ingest.OVERHEAD) // WIDTH
    table = service_ingest.tuples(length)
    messages = [service_ingest.request(table.slice(i, each), i // each + 1) for i in range(0, length, each)]

    def contender(host: Host) -> Contender:
        def prepare() -> Callable[[], None]:
            with host.session() as session:
                retail(session, "sales", length)
            return lambda: service_ingest.transfer(host.channel, service_ingest.INGEST, messages)

        return prepare

    took = alternate({"durable": contender(durable), "memory": contender(memory)}, rounds, WALL)
    rate = {name: length / nanoseconds * 1e3 for name, nanoseconds in took.items()}
    sizes: dict[str, int | float | str] = {"tuples": length, "KiB": size >> 10, "rows": each}
    return [
        Figure("rows", rate["durable"], unit="M rows/s", goal=">= 1", sizes=sizes),
        Figure("durable", rate["durable"], rate["memory"], "in memory", "M rows/s", "", sizes),
    ]
