"""A small store that a test fills, asks, spoils, and leaves as a crash does."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from promising.index import Options
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.stream import Stream
from promising.testing import ManualClock

CLOCK = ManualClock(1 << 50)
TYPES = {"ts": "timestamp", "k": "int", "s": "string", "x": "float"}
SMALL = StoreOptions(segment_bytes=1 << 16, checkpoint_bytes=1 << 60, hot_tuples=0, run_tuples=0, sync_ahead=False)
OPTIONS = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)


def opened(path: Path, options: StoreOptions = SMALL, **more) -> Store:
    return Store.open(path, clock=CLOCK, options=options, **more)


def batch(number: int, n: int = 100):
    rng = np.random.default_rng(number)
    k = rng.integers(0, 20, n)
    x = [None if v % 7 == 0 else v / 2 for v in k.tolist()]
    return {"ts": number * 100 + np.arange(n), "k": k, "s": [f"é{v}" for v in k.tolist()], "x": x}


def filled(store: Store, batches: int = 30, name: str = "a") -> Stream:
    stream = store.create_stream(name, TYPES, "ts", lateness=50, max_tuples=1 << 14, keep=2000)
    stream.create_summary(f"{name}_k", "k", granularity=200, collapse=(3, 4), options=OPTIONS)
    stream.create_summary(f"{name}_s", "s", granularity=100, collapse=(2, 5), options=OPTIONS, structure="grid")
    for number in range(batches):
        stream.append(batch(number), producer="p", sequence=number + 1)
    return stream


def told(stream: Stream):
    """All that can be asked of a stream."""
    rows = stream._log.rows()
    asked = {"k": np.arange(25), "s": [f"é{v}" for v in range(25)]}
    out = [stream.watermark, stream.latest, stream.accepted, stream.refused, stream.take(rows).to_pydict()]
    for name, summary in stream.summaries.items():
        found = summary.fetch(asked[summary.key])
        out += [
            name,
            replace(summary.describe(), bytes=0),
            summary.estimate(asked[summary.key]).value.tolist(),
            found[1].to_pydict(),
        ]
    return repr(out)


def crash(store: Store) -> None:
    """Leave it as a process does that is killed."""
    store._ended.set()
    for thread in store._threads:
        thread.join()
    for kept in store._kept.values():
        if kept.wal._handle is not None:
            kept.wal._disk.close(kept.wal._handle)
    store._let_go()


def files(root: Path, kind: str) -> list[Path]:
    return sorted(path for path in root.glob(f"streams/*/{kind}/*") if path.name != "synced")


def spoil(path: Path, at: int = -100) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
