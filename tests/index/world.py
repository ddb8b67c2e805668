"""A stream and its oracle side by side, fed with the same tuples."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import promising.index.columns
import promising.index.dictionary
import promising.index.log
from promising.errors import DataDamaged
from promising.index import Options, Stream, SummaryIndex
from promising.index.kernels import dictionary as kernels
from promising.index.postings import Postings
from promising.index.schema import Column
from promising.index.summary import SummaryState
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock, Oracle
from tests.index.counted import counted

SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "id": "int", "x": "float"}
STRUCTURES = ("none", "time", "grid", "adaptive")
UNPOSTED = {"off": "k", "text off": "s"}
"""Names of summaries without postings, and their keys."""
SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, tolerance=4.0, filter_bits=256, coarse_bits=512)

Columns = dict[str, Any]


def words(keys: NDArray[np.int64]) -> list[str]:
    """A string key for each integer one, some of them longer than a block of the hash."""
    return [f"{k}" if k % 3 else f"item {k} " + "é" * (int(k) % 40) for k in keys]


def columns(times: Any, keys: Any, first: int = 0) -> Columns:
    """Tuples numbered from `first` on in their `id`; every fifth has no `x`."""
    ts, k = np.asarray(times, np.int64), np.asarray(keys, np.int64)
    ids = np.arange(first, first + len(ts))
    x = [None if i % 5 == 0 else i / 8 for i in ids]
    return {"ts": ts, "k": k, "s": words(k), "id": ids, "x": x}


def part(batch: Columns, start: int, stop: int) -> Columns:
    return {name: values[start:stop] for name, values in batch.items()}


def small_chunks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Chunks of so few rows that a short stream fills, frees and reuses them."""
    monkeypatch.setattr(promising.index.log, "CHUNK", rows)


class ColdShelf:
    """Cold tuples, in memory."""

    footer_bytes = 0

    def __init__(self) -> None:
        self.runs: dict[int, dict[str, Column]] = {}
        self.lost: set[int] = set()

    def column(self, run: int, name: str, offsets: NDArray[np.int32]) -> Column:
        if run in self.lost:
            raise DataDamaged(f"run {run} is lost")
        values, text, nulls = self.runs[run][name]
        return Column(
            None if values is None else values[offsets],
            None if text is None else text.take(pa.array(offsets)),
            None if nulls is None else nulls[offsets],
        )


def cool(stream: Stream, shelf: ColdShelf, warm: int, most: int) -> bool:
    """Let the oldest chunks go cold, so far as no zone of `G_1` has them; whether there was one."""
    horizons = [s.state.horizons for s in stream.summaries.values()]
    before = min((h[0] if h else -(1 << 62) for h in horizons), default=1 << 62)
    with stream.reading() as log:
        chunks = log.coolable(before, warm, most)
        if not chunks:
            return False
        run = len(shelf.runs)
        shelf.runs[run] = log.columns_of(chunks)
        log.reader = shelf
        return log.cool(run, chunks)


def restarted(stream: Stream, clock: Callable[[], int]) -> Stream:
    """The same stream, from its image; the image of that is the same."""
    image = stream.image()
    made = Stream(
        stream.name,
        stream.schema.types,
        stream.schema.time,
        lateness=stream.lateness,
        max_future=stream.max_future,
        max_jump=stream.max_jump,
        clock=clock,
        max_tuples=stream.max_tuples,
        max_string_bytes=stream.max_string_bytes,
        seed=stream.seed,
    )
    made.restore(image)
    with stream.reading() as before, made.reading() as after:
        after.reader = before.reader
    assert same_tree(made.image(), image)
    return made


def same_tree(a: Any, b: Any) -> bool:
    """Whether two images are equal to the bit."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_tree(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_tree, a, b))
    return bool(type(a) is type(b) and a == b)


def ids(stream: Stream, rows: NDArray[np.int32]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = stream.take(rows, ["id"]).column("id").to_numpy()
    return found


def cells(summary: SummaryIndex) -> list[tuple[int, int, int]]:
    """Every cell there is, as (granularity, zone, bucket)."""
    sizes = summary.state.identity.sizes
    if sizes.structure == "none":
        return [(1, 0, 0)]
    return [(z.granularity, z.zone, b) for z in summary.describe().zones for b in range(sizes.buckets)]


def contents(stream: Stream, summary: SummaryIndex) -> dict[int, tuple[int, int, int]]:
    """The cell of every tuple, by its id; fails if a tuple is in two."""
    home: dict[int, tuple[int, int, int]] = {}
    for cell in cells(summary):
        for name in ids(stream, summary.visit(cell)).tolist():
            assert name not in home, f"tuple {name} is in {home[name]} and in {cell}"
            home[name] = cell
    return home


def pairs(stream: Stream, summary: SummaryIndex, keys: Any, window: tuple[int, int] | None) -> list[tuple[int, int]]:
    """What a probe finds, as the oracle says it: (place of the key, id), ascending."""
    found = summary.probe(keys, window)
    return sorted(zip(found.probe.tolist(), ids(stream, found.rows).tolist(), strict=True))


def fingerprint(stream: Stream) -> Any:
    """All that a refused batch must leave as it is: tuples, watermark, and every summary to the bit."""
    log = stream._log
    rows = log.rows()
    table = stream.take(rows)
    out: list[Any] = [stream.watermark, stream.accepted, rows.tolist(), str(table.to_pydict()), stream.nbytes]
    for name, summary in stream.summaries.items():
        out += [(cell, summary.visit(cell).tolist()) for cell in cells(summary)]  # first: visiting takes some bytes
        out += [name, str(summary.describe())]
        state = summary.state
        if isinstance(state, SummaryState):
            for level, zones in state.coarse.levels.items():
                parts = ((z.number, counted(z), z.bits.tobytes(), z.cells.tobytes()) for z in zones.values())
                out += [(level, *p) for p in parts]
            fine, pool = state.fine, state.fine.pool
            out += counted(pool)
            out += [a.tobytes() for a in (pool.sliced, pool.cells, fine._state, fine._signed)]
            out += [state.postings._entries.tobytes()] if isinstance(state.postings, Postings) else []
    return out


def oracle_for(summary: SummaryIndex, stream: Stream, clock: ManualClock) -> Oracle:
    """An oracle with the time of a summary."""
    g = summary.state.identity.geometry
    return Oracle(
        "ts",
        summary.key,
        granularity=g.granularity,
        collapse=(g.rate, g.depth),
        keep=g.keep,
        clock=clock,
        lateness=stream.lateness,
        max_future=stream.max_future,
        max_jump=stream.max_jump,
    )


def flat(image: Any) -> Any:
    """An image without arrays: equal if and only if all of it is, to the bit, and `repr` shows all of it."""
    if isinstance(image, dict):
        return {name: flat(part) for name, part in image.items()}
    if isinstance(image, list | tuple):
        return [flat(part) for part in image]
    return (image.dtype.str, image.shape, image.tobytes()) if isinstance(image, np.ndarray) else image


def narrow_hashes(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Key hashes of so few bits that different strings share one."""
    mask = np.uint64((1 << bits) - 1)

    def of_codes(arena: Any, ends: Any, seed: Any, first: int, last: int, keys: NDArray[np.uint64]) -> None:
        kernels.hash_keys(arena, ends, seed, first, last, keys)
        keys[first:last] &= mask

    narrow = SimpleNamespace(**{**vars(kernels), "hash_keys": of_codes})
    monkeypatch.setattr(promising.index.dictionary, "kernels", narrow)
    monkeypatch.setattr(promising.index.columns, "hash_keys", lambda keys, seed: hash_keys(keys, seed) & mask)
