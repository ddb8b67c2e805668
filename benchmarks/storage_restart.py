"""How long a start takes, against reading once the very files that it reads; with the system's cache of them dropped,
and with it warm. After a close, when there is a checkpoint of everything, and after a kill, when there is log to read.

Each start is a process of its own; what a process loads once is loaded before the clock runs.
"""

import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.storage_data import WIDTH, alone
from promising.index.storage.disk import Disk
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions

GOAL = "<= 3"
PIECE = 1 << 20


class Start(NamedTuple):
    """What a start took, and what reading took."""

    ours: float
    plain: float
    read: int
    """Bytes of the files."""
    tuples: int


class Watched(Disk):
    """Remembers which files are read."""

    def __init__(self) -> None:
        self.read_paths: set[Path] = set()

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        self.read_paths.add(path)
        return super().read(path, offset, length)

    def read_into(self, path: Path, offset: int, place: memoryview) -> int:
        self.read_paths.add(path)
        return super().read_into(path, offset, place)


def run(report: Report, effort: Effort) -> None:
    sizes = (1 << 18,) if effort.quick else (1_000_000, 10_000_000)
    rounds = 1 if effort.quick else 5
    figures = []
    for n in sizes:
        for closing in (True, False):
            with storage_data.folder() as folder:
                path = folder / "store"
                took = alone(storage_data.fill, path, n, closing, StoreOptions())
                named: dict[str, int | float | str] = {"tuples": n, "after": "a close" if closing else "a kill"}
                figures.append(Figure("filled", n / took / 1e6, unit="M rows/s", sizes=named))
                for warm in (False, True):
                    starts = [alone(_start, path, warm) for _ in range(rounds)]
                    if any(start.tuples != n for start in starts):
                        raise RuntimeError(f"a start found {starts[0].tuples:,} of {n:,} tuples")
                    ours, plain = (statistics.median(s) for s in zip(*((s.ours, s.plain) for s in starts), strict=True))
                    told = {**named, "cache": "warm" if warm else "cold", "MB": round(starts[0].read / 1e6)}
                    figures.append(Figure("start", ours, plain, "reading the same files", "s", GOAL, told))
                    if not warm:
                        figures.append(Figure("of the tuples' bytes", starts[0].read / (n * WIDTH), sizes=told))
    report.part("restart", "a start against reading the same bytes once", figures)


def _start(path: Path, warm: bool) -> Start:
    storage_data.warm_up()
    watched = Watched()
    if not warm:
        storage_data.drop_caches(storage_data.files(path))
    began = time.perf_counter()
    store = Store.open(path, disk=watched)
    ours = time.perf_counter() - began
    tuples = store.streams["sales"].count
    paths = sorted(watched.read_paths)
    if not warm:
        storage_data.drop_caches(paths)
    buffer = bytearray(PIECE)
    began = time.perf_counter()
    for name in paths:
        with name.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    plain = time.perf_counter() - began
    return Start(ours, plain, sum(os.path.getsize(name) for name in paths), tuples)
