"""Checks the order of the log's chunks and the validity of every tuple."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.chunks import Chunk
from promising.index.instants import FARTHEST
from promising.index.log import TupleLog
from promising.index.time_text import instant

SLICE = 1 << 18  # tuples read at once


def slices(log: TupleLog) -> Iterator[NDArray[np.int32]]:
    """All rows of the log in order of arrival, about `SLICE` at a time."""
    starts, used, _, _ = log.spans()
    step = max(1, SLICE // log.chunk)
    for first in range(0, len(starts), step):
        parts = zip(starts[first : first + step], used[first : first + step], strict=True)
        yield np.concatenate([np.arange(s, s + n, dtype=np.int32) for s, n in parts])


def readable(log: TupleLog) -> bool:
    """Whether every row of every chunk lies in the log, in one chunk, and has its strings if it is in memory."""
    return _apart(log) and all(_with_strings(log, name) >= _warm(log) and _known(log, name) for name in log._heaps)


def _apart(log: TupleLog) -> bool:
    size, chunks = log.chunk, list(log._chunks)
    legal = all(0 <= c.start <= log.capacity - size and c.start % size == 0 and 0 < c.used <= size for c in chunks)
    return legal and len({c.start for c in chunks}) == len(chunks)


def _warm(log: TupleLog) -> set[int]:
    return {c.start for c in log._chunks if log._tiers.run[c.start // log.chunk] < 0}


def _with_strings(log: TupleLog, name: str) -> set[int]:
    """The chunks whose strings are in memory, in a heap or as codes."""
    return log._heaps[name].keys() | log._coded[name].starts


def _known(log: TupleLog, name: str) -> bool:
    """Whether every code is in the dictionary."""
    coded = log._coded[name]
    codes = coded.codes_of(sorted(coded.starts))
    return bool(((codes >= -1) & (codes < len(coded.dictionary))).all())


def check_chunks(log: TupleLog) -> Iterator[str]:
    """Order, counts and location of chunks. After a loss, whole chunks of arrivals may be missing."""
    size = log.chunk
    chunks = list(log._chunks)
    if sorted([*(c.start for c in chunks), *log._free]) != list(range(0, log.capacity, size)):
        yield "the log's chunks in use and those free are not all there are, each once"
    expected = chunks[0].base if chunks else log.arrived
    for place, chunk in enumerate(chunks):
        where = f"the log, chunk at row {chunk.start}"
        if not 0 < chunk.used <= size or (chunk.used < size and not _may_be_short(log, chunks, place)):
            yield f"{where}: it has {chunk.used:,} tuples; {size:,} is a full one"
        if chunk.base < expected:
            yield f"{where}: its first tuple is arrival {chunk.base:,}, and should be {expected:,}"
        expected = chunk.base + chunk.used
        at = chunk.start // size
        if 0 <= at < len(log.bases):
            if log.bases[at] != chunk.base or log._used[at] != chunk.used:
                yield f"{where}: the table of chunks says arrival {log.bases[at]:,} and {log._used[at]:,} tuples"
            if tuple(log._edges[at].tolist()) != (chunk.earliest, chunk.latest):
                yield f"{where}: the table of chunks has other edges in time than the chunk"
    if expected > log.arrived:
        yield f"the log counts {log.arrived:,} arrivals, but its chunks end at {expected:,}"
    if (log._used[[start // size for start in log._free]] != 0).any():
        yield "the log has tuples in a chunk that is free"
    if _apart(log):
        yield from _tiers(log, chunks)


def _may_be_short(log: TupleLog, chunks: list[Chunk], place: int) -> bool:
    """A chunk ends early where a run of loaded tuples begins, ends, or was lost."""
    if place == len(chunks) - 1:
        return True
    here, after = (bool(log._tiers.run[c.start // log.chunk] >= 0) for c in chunks[place : place + 2])
    return here or after or chunks[place].base + chunks[place].used < chunks[place + 1].base


def _tiers(log: TupleLog, chunks: list[Chunk]) -> Iterator[str]:
    """Which chunks are cold, and the string bytes of the others."""
    size, tiers = log.chunk, log._tiers
    runs: dict[int, list[tuple[int, int]]] = {}
    for chunk in chunks:
        run = int(tiers.run[chunk.start // size])
        if run >= 0:
            runs.setdefault(run, []).append((int(tiers.place[chunk.start // size]), chunk.used))
    if {run: len(places) for run, places in runs.items()} != tiers.live or (tiers.run >= 0).sum() != sum(
        tiers.live.values()
    ):
        yield "the log counts other chunks as cold than those that are"
    if sum(c.used for c in chunks) != len(log):
        yield f"the log counts {len(log):,} tuples, and its chunks have {sum(c.used for c in chunks):,}"
    for run, places in runs.items():
        if any(b < a + used for (a, used), (b, _) in pairwise(places)):
            yield f"the log, cold run {run:016x}: two of its chunks are at one place, or out of order"
    for name in log._heaps:
        yield from (f"the log, column {name!r}: {what}" for what in _strings(log, name))
    held = sum(heap.nbytes for heaps in log._heaps.values() for heap in heaps.values())
    if held != log._heap_bytes:
        yield f"the log counts {log._heap_bytes:,} bytes of strings, and has {held:,}"


def _strings(log: TupleLog, name: str) -> Iterator[str]:
    """Each chunk in memory has its strings once, and the dictionary counts the rows of each."""
    coded = log._coded[name]
    if _with_strings(log, name) != _warm(log) or log._heaps[name].keys() & coded.starts:
        yield "it has strings of chunks that are not in memory, or lacks some"
    if any(coded.has(c.start) and coded.used(c.start) != c.used for c in log._chunks):
        yield "a chunk has more or fewer codes than tuples"
    elif not _known(log, name):
        yield "it has codes that are not in its dictionary"
    elif not coded.dictionary.counts(coded.codes_of(sorted(coded.starts))):
        yield "its dictionary counts other rows than there are"


def check_tuples(log: TupleLog) -> Iterator[str]:
    """The tuples, and their chunks' time bounds."""
    for chunk in log._chunks:
        where = f"the log, chunk at row {chunk.start}"
        rows = np.arange(chunk.start, chunk.start + chunk.used, dtype=np.int32)
        try:
            times = log.when(rows)
            if times.min() < -FARTHEST or times.max() > FARTHEST:
                yield f"{where}: a time lies further off than {instant(FARTHEST)}"
            if (times.min(), times.max()) != (chunk.earliest, chunk.latest):
                yield (
                    f"{where}: its tuples are from {instant(int(times.min()))} to {instant(int(times.max()))}, not from"
                    f" {instant(chunk.earliest)} to {instant(chunk.latest)}"
                )
            for name in log.schema.types:
                yield from (f"{where}, column {name!r}: {what}" for what in _column(log, name, rows))
        except DataDamaged as problem:
            yield f"{where}: it cannot be read: {problem}"


def _column(log: TupleLog, name: str, rows: NDArray[np.int32]) -> Iterator[str]:
    try:
        log.array(name, rows).validate(full=True)
    except pa.ArrowInvalid as problem:
        yield f"it is malformed: {problem}"
    if log.schema.types[name] == "bool" and (log.values(name, rows) > 1).any():
        yield "a value is neither true nor false"
