"""Eviction of tuples from memory to cold files: which, when, and in what order."""

import threading
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from promising.index.chunks import Chunk
from promising.index.geometry import zone_starts
from promising.index.instants import BEGINNING, END
from promising.index.log import TupleLog
from promising.index.schema import Column
from promising.index.storage.cold import Cold
from promising.index.storage.cold_file import Entry
from promising.index.storage.store_options import StoreOptions
from promising.index.stream import Stream
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex, best_summary
from promising.index.zone import buckets_of

PATIENCE = 0.5  # maximum seconds that a batch is delayed while tuples are evicted
BEHIND = 8  # runs due for eviction before batches are delayed


class Cooling:
    """Evicts the oldest tuples that have left every `G_1` to files, run by run; `hot_tuples` stay in memory."""

    def __init__(self, cold: Cold, options: StoreOptions) -> None:
        self._cold = cold
        self._hot, self._run = options.hot_tuples, options.run_tuples
        self.abreast = threading.Event()  # cleared while tuples arrive faster than they can be evicted
        self.abreast.set()

    def pace(self) -> None:
        """Backpressure: delays senders that are faster than eviction, so that memory stays bounded."""
        if not self.abreast.is_set():
            self.abreast.wait(PATIENCE)

    def due(self, stream: Stream) -> bool:
        """Whether there is too much in memory, and some of it can be evicted."""
        with stream.reading() as log:
            return log.warm - self._kept(stream) >= 2 * self._run and bool(self._chunks(stream, log))

    def _kept(self, stream: Stream) -> int:
        """Tuples that stay in memory."""
        return 0 if stream.memory is not None and stream.memory.pressed else self._hot

    def runs(self, stream: Stream, number: Callable[[], int]) -> Iterator[tuple[int, Entry]]:
        """Write and yield runs, with manifest entries, until no more can be evicted. number: of the next run."""
        try:
            while (made := self._next(stream, number)) is not None:
                run, entry, cooled = made
                if cooled:
                    yield run, entry
                else:  # some of its tuples aged out meanwhile
                    self._cold.delete(run)
        finally:
            self.abreast.set()

    def _next(self, stream: Stream, number: Callable[[], int]) -> tuple[int, Entry, bool] | None:
        with stream.reading() as log:
            chunks = self._chunks(stream, log)
            if not chunks:
                return None
            kept = self._kept(stream)
            if log.warm > kept + max(kept, BEHIND * self._run):
                self.abreast.clear()
            else:
                self.abreast.set()
            columns = log.columns_of(chunks)
            key, zones, buckets, hashes = cells_of(stream, columns)
        run = number()
        entry = self._cold.write(run, stream.schema.types, columns, zones, buckets, key, hashes)
        self._cold.open(run, entry)
        with stream.reading() as log:
            cooled = log.cool(run, chunks)
            stream.weigh()
            return run, entry, cooled

    def _chunks(self, stream: Stream, log: TupleLog) -> list[Chunk]:
        """The next chunks to evict: a whole run, or as many as there are if one is overdue."""
        most = max(self._run // log.chunk, 1)
        states = [summary.state for summary in stream.summaries.values()]
        left = [
            s.horizons[0] if s.horizons else BEGINNING
            for s in states
            if isinstance(s, SummaryState) or s.identity.auto  # which may have a G_1 again
        ]
        kept = self._kept(stream)
        found = log.coolable(min(left, default=END), kept, most)  # they have left G_1
        overdue = log.warm >= kept + 2 * most * log.chunk
        return found if len(found) == most or overdue else []


def cells_of(
    stream: Stream, columns: dict[str, Column]
) -> tuple[str, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """The key that orders tuples, and the zone, bucket and hash of each, by the summary with the furthest reach.

    Without one there are no hashes, and one bucket.
    """
    times = columns[stream.schema.time].values
    assert times is not None
    summary = furthest(stream)
    if summary is None:
        return stream.schema.time, np.zeros(len(times), np.int64), np.zeros(len(times), np.int64), None
    state = summary.state
    assert isinstance(state, SummaryState)
    hashes = state.log.hash_column(columns[summary.key], stream.seed)
    zones = [] if state.watermark is None else state.identity.geometry.zones(state.watermark)
    return summary.key, zone_starts(times, zones), buckets_of(hashes, state.identity.sizes), hashes


def furthest(stream: Stream) -> SummaryIndex | None:
    """The summary with structure that reaches furthest back; ties by name."""
    found = (best_summary(stream.summaries, summary.key) for summary in stream.summaries.values())
    structured = [s for s in found if s is not None and s.structure != "none"]
    return max(structured, key=lambda s: (s.reach, s.name), default=None)
