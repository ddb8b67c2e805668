"""The resident size of a store that serves: against the bytes of its tuples. Most of them are on disk.

One process fills the store; another opens it and is asked many things: estimates, keys, windows. Both say how large
they are, by how much they grew since before they had a store, and what is in it.
"""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report, give_back
from benchmarks.storage_data import BATCH, ITEMS, MINUTE, SEED, WIDTH, alone
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions

GOAL = "<= 0.25"
JUDGED = 100_000_000  # tuples from which on the size of an empty process does not matter
ASKED = 200


class Size(NamedTuple):
    """Bytes."""

    resident: int
    grown: int
    summary: int
    seconds: float


def run(report: Report, effort: Effort) -> None:
    sizes = (1 << 20,) if effort.quick else (10_000_000, JUDGED)
    for n in sizes:
        options = (
            StoreOptions(hot_tuples=1 << 18) if effort.quick else StoreOptions(hot_tuples=1 << 20, cache_bytes=64 << 20)
        )
        with storage_data.folder() as folder:
            path = folder / "store"
            filled = alone(_fill, path, n, options)
            served = alone(_serve, path, n, options)
            on_disk = sum(p.stat().st_size for p in storage_data.files(path))
        told: dict[str, int | float | str] = {"tuples": n, "data MB": round(n * WIDTH / 1e6)}
        data = float(n * WIDTH)
        figures = []
        for what, size in (("filling", filled), ("serving", served)):
            goal = GOAL if n >= JUDGED and what == "serving" else ""
            figures.append(Figure(f"resident, {what}", size.resident, data, "its data", "bytes", goal, told))
            figures.append(Figure(f"grown, {what}", size.grown, data, "its data", "bytes", "", told))
            figures.append(Figure(f"summary, {what}", size.summary, data, "its data", "bytes", "", told))
        figures.append(Figure("on disk", on_disk, data, "its data", "bytes", "", told))
        figures.append(Figure("filled", n / filled.seconds / 1e6, unit="M rows/s", sizes=told))
        figures.append(Figure("questions", ASKED / served.seconds, unit="1/s", sizes=told))
        report.part("memory", f"a store of {n:,} tuples", figures)


def _resident() -> int:
    give_back()
    return int(psutil.Process().memory_info().rss)


def _fill(path: Path, n: int, options: StoreOptions) -> Size:
    storage_data.warm_up()
    before = _resident()
    store = Store.open(path, seed=SEED, options=options)
    stream = storage_data.make(store, n)
    began = time.perf_counter()
    for batch in storage_data.batches(n, BATCH):
        stream.append(batch)
    took = time.perf_counter() - began
    now, summary = _resident(), stream.summaries["items"].describe().bytes
    store.close()
    return Size(now, now - before, summary, took)


def _serve(path: Path, n: int, options: StoreOptions) -> Size:
    storage_data.warm_up()
    before = _resident()
    store = Store.open(path, options=options)
    stream = store.streams["sales"]
    summary = stream.summaries["items"]
    rng = np.random.default_rng(SEED)
    assert stream.watermark is not None
    began = time.perf_counter()
    for _ in range(ASKED):
        keys = rng.integers(0, ITEMS, 3)
        end = stream.watermark - int(rng.random() * n / storage_data.RATE * 1e6)
        summary.estimate(keys)
        summary.fetch(keys, (end - MINUTE, end))
    took = time.perf_counter() - began
    now = _resident()
    own = summary.describe().bytes
    store.close()
    return Size(now, now - before, own, took)
