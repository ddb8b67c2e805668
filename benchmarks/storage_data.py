"""Stores for the measurements: retail tuples of five columns, eight bytes each, where temporary files are."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from benchmarks.service_host import START
from promising.index import Stream
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.testing import streams

P = ParamSpec("P")
T = TypeVar("T")

SCHEMA = {"store_id": "int", "transaction_id": "int", "ts": "timestamp", "item_id": "int", "price": "float"}
WIDTH = 40  # bytes of a tuple
ITEMS, EXPONENT, RATE = 40_000, 1.1, 10_000.0
BLOCK = 1 << 20  # tuples that are drawn; longer streams repeat them, with times that go on
BATCH = 1 << 16
SEED = 1
MINUTE = 60_000_000


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


def alone(measure: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """In a process of its own, which starts with nothing in memory and ends as a killed one does."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *args, **kwargs).result()


def make(store: Store, tuples: int) -> Stream:
    """A stream with one summary on its items, which keeps all that comes."""
    stream = store.create_stream("sales", SCHEMA, "ts", max_tuples=max(tuples, 1 << 18))
    stream.create_summary("items", "item_id", granularity=MINUTE, collapse=(4, 5))
    return stream


def batches(n: int, size: int = BATCH) -> Iterator[dict[str, Any]]:
    """`n` tuples in batches."""
    columns = streams.zipf(min(n, BLOCK), ITEMS, EXPONENT, seed=SEED, start=START, rate=RATE)
    length = int(columns["ts"][-1]) - START + 1
    for first in range(0, n, BLOCK):
        passed = first // BLOCK
        ts = columns["ts"] + passed * length
        for at in range(0, min(n - first, len(ts)), size):
            part = slice(at, min(at + size, n - first))
            yield {**{name: values[part] for name, values in columns.items()}, "ts": ts[part]}


def fill(path: Path, n: int, closing: bool, options: StoreOptions) -> float:
    """A store of `n` tuples; seconds that it took to send them, each batch durable before the next."""
    store = Store.open(path, seed=SEED, options=options)
    stream = make(store, n)
    began = time.perf_counter()
    for batch in batches(n):
        stream.append(batch)
    took = time.perf_counter() - began
    if closing:
        store.close()
    return took


def warm_up() -> None:
    """Load what a process loads once: a small store, filled, opened and asked."""
    with folder() as place:
        fill(place / "small", 1 << 15, True, StoreOptions())
        with Store.open(place / "small") as store:
            store.streams["sales"].summaries["items"].fetch([1, 2, 3])


def drop_caches(paths: list[Path]) -> None:
    """Let the system forget what it has in memory of these files. They are synced first: what is not stays."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())
