"""A stream: a log of tuples, the watermark they move, and the summaries that advance with it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from index.bare import BareState
from index.geometry import Geometry
from index.kernels.seal import extent
from index.log import CHUNK, TupleLog
from index.options import Options, Sizes
from index.schema import FARTHEST, Batch, Column, Schema
from index.summary import Identity, SummaryState
from index.summary_index import SummaryIndex
from summaries.errors import (
    BadCollapse,
    BadOptions,
    BatchError,
    BatchTooLarge,
    CeilingTooLow,
    DuplicateName,
    NullKey,
    TooFarAhead,
    TooOld,
    UnknownName,
    WrongType,
)

MINUTE = 60_000_000
LARGEST_BATCH = 1 << 22


def wall_clock() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Appended:
    """What became of a batch: tuples accepted, and refused by reason."""

    accepted: int
    refused: dict[str, int] = field(default_factory=dict)


class Stream:
    """A named, typed, append-only sequence of tuples with one event-time column.

    The watermark is the latest event time seen, less `lateness`; it never goes back. Each tuple is judged against the
    watermark before it, in order of arrival, so how a stream is cut into batches changes no answer; only zones of
    `G_1` may begin elsewhere. One writer at a time; readers see the state between two batches.

    >>> stream = Stream("store1", {"ts": "timestamp", "item_id": "int"}, time="ts")
    >>> summary = stream.create_summary("s1", key="item_id", granularity=60_000_000, collapse=(4, 5))
    >>> stream.append({"ts": [0, 1_000_000, 2_000_000], "item_id": [7, 7, 9]})
    Appended(accepted=3, refused={})
    >>> summary.estimate([7, 8]).value
    array([2., 0.])
    >>> stream.take(summary.probe([7]).rows).column("ts").cast("int64").to_pylist()
    [1000000, 0]

    Parameters
    ----------
    schema: column names and their types: int, float, string, bool or timestamp.
    time: the event-time column.
    lateness: how far behind the latest event time the watermark stays, in microseconds.
    max_future: a tuple dated later than the clock by more than this is refused.
    clock: tells the time, in microseconds since the epoch.
    max_tuples, max_string_bytes: what the stream may keep; a batch that does not fit is refused.
    seed: of the key hash; a secret of the installation. Summaries that are to be joined share it.
    """

    def __init__(
        self,
        name: str,
        schema: Mapping[str, str],
        time: str,
        *,
        lateness: int = 0,
        max_future: int = 5 * MINUTE,
        clock: Callable[[], int] = wall_clock,
        max_tuples: int = 1 << 22,
        max_string_bytes: int = 1 << 30,
        seed: int = 0,
    ) -> None:
        for what, span in (("lateness", lateness), ("max_future", max_future)):
            if not isinstance(span, int) or not 0 <= span <= FARTHEST:
                raise BadOptions(f"{what} must be whole microseconds, not negative, got {span!r}")
        if not 1 <= max_tuples <= (1 << 31) - CHUNK:
            raise BadOptions(f"max_tuples must be from 1 to {(1 << 31) - CHUNK:,}, got {max_tuples:,}")
        if not isinstance(max_string_bytes, int) or max_string_bytes < 1:
            raise BadOptions(f"max_string_bytes must be a positive whole number, got {max_string_bytes!r}")
        if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
            raise BadOptions("the seed must be a whole number of 64 bits, signed")
        self.name = name
        self.schema = Schema(dict(schema), time)
        self.lateness = lateness
        self.max_future = max_future
        self.clock = clock
        self.seed = seed
        self.watermark: int | None = None
        self.latest: int | None = None
        """The latest event time accepted."""
        self._floor: int | None = None  # what is older has aged out, whatever summaries come and go
        self._refused: dict[str, int] = {}
        self.accepted = 0
        self._log = TupleLog(self.schema, max_tuples, max_string_bytes)
        self._summaries: dict[str, SummaryIndex] = {}
        self._keys: frozenset[str] = frozenset()
        self._geometries: set[Geometry] = set()
        self._lock = RLock()

    # --- summaries -----------------------------------------------------------------------------------------------

    @property
    def summaries(self) -> dict[str, SummaryIndex]:
        return dict(self._summaries)

    def create_summary(
        self,
        name: str,
        key: str,
        *,
        granularity: int,
        collapse: tuple[int, int] = (4, 5),
        structure: str = "adaptive",
        options: Options | None = None,
    ) -> SummaryIndex:
        """Summarise one attribute. Tuples the stream already has are summarised at once.

        granularity: `T_1`, in microseconds; collapse: (rate, depth). The memory ceiling is worked out here and holds.
        """
        with self._lock:
            if name in self._summaries:
                raise DuplicateName(f"stream {self.name!r} already has a summary {name!r}")
            self.schema.check_key(key)
            if self._log.has_nulls(key):
                raise NullKey(f"column {key!r} cannot be a key: the stream holds tuples that have none")
            options = options or Options()
            if not isinstance(collapse, tuple | list) or len(collapse) != 2:
                raise BadCollapse(f"COLLAPSE is (rate, depth), not {collapse!r}")
            geometry = Geometry(granularity, *collapse)
            sizes = Sizes.of(structure, options, geometry, self._log.capacity, self.lateness)
            identity = Identity(name, key, geometry, sizes)
            state: SummaryState | BareState
            if structure == "none":
                state = BareState(identity, self._log, self.seed)
            else:
                try:
                    state = SummaryState(identity, options, self._log, self.seed)
                except MemoryError:
                    raise CeilingTooLow(
                        f"this machine cannot reserve the {sizes.ceiling:,} bytes these sizes need: lower buckets,"
                        " depth, width, filter_bits or the stream's max_tuples, or use a granularity nearer to the"
                        " lateness"
                    ) from None
            state.floor = self.oldest
            if self.watermark is not None:
                state.advance(self.watermark)
                rows = self._log.rows()
                for start in range(0, len(rows), LARGEST_BATCH):
                    part = rows[start : start + LARGEST_BATCH]
                    times = self._log.times[part]
                    state.insert(self._log.hashes(key, part, self.seed), part, times, *extent(times))
            summary = self._summaries[name] = SummaryIndex(state, self._lock)
            self._changed()
            return summary

    def drop_summary(self, name: str) -> None:
        with self._lock:
            if name not in self._summaries:
                known = ", ".join(self._summaries) or "none"
                raise UnknownName(f"stream {self.name!r} has no summary {name!r}; it has {known}")
            self._summaries.pop(name).dropped = True
            self._changed()

    def _changed(self) -> None:
        self._keys = frozenset(s.key for s in self._summaries.values())
        self._geometries = {s.state.identity.geometry for s in self._summaries.values()}

    # --- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, *, strict: bool = False) -> Appended:
        """Add tuples. A malformed batch raises a `BatchError` and changes nothing.

        Tuples too old for every summary, or too far ahead of the clock, are left out and counted by reason; with
        `strict` they raise `TooOld` or `TooFarAhead` instead and nothing is added.
        """
        with self._lock:
            try:
                return self._append(batch, strict)
            except BatchError as problem:
                self._count(problem.reason, _tuples(batch))
                raise

    def _append(self, batch: Batch, strict: bool) -> Appended:
        columns, times, least, greatest = self.schema.read(batch, self._keys)
        if len(times) > LARGEST_BATCH:
            raise BatchTooLarge(f"{len(times):,} tuples in one batch; {LARGEST_BATCH:,} is the most, so split it")
        ahead, old = self._judge(times, least, greatest, strict)
        refused = {r: int(m.sum()) for r, m in (("too_far_ahead", ahead), ("too_old", old)) if m is not None}
        if refused:
            kept = np.ones(len(times), np.bool_)
            for mask in (ahead, old):
                if mask is not None:
                    kept &= ~mask
            columns = {name: _filter(column, kept) for name, column in columns.items()}
            times = times[kept]
            if len(times):
                least, greatest = extent(times)
        if len(times):
            watermark = max(greatest - self.lateness, self._start())
            self._log.check_room(len(times), columns, lambda: self._oldest(watermark))
            hashes = {key: self._log.hash_column(columns[key], self.seed) for key in self._keys}
            self._advance(watermark)  # from here on nothing can be refused
            self.latest = greatest if self.latest is None else max(self.latest, greatest)
            rows = self._log.write(columns, len(times))
            for summary in self._summaries.values():
                summary.state.insert(hashes[summary.key], rows, times, least, greatest)
        for reason, count in refused.items():
            self._count(reason, count)
        self.accepted += len(times)
        return Appended(len(times), refused)

    def _judge(
        self, times: NDArray[np.int64], least: int, greatest: int, strict: bool
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Which tuples are too far ahead and which too old, one at a time in order of arrival; None if none are."""
        limit = self.clock() + self.max_future
        ahead = None
        counted = times
        if greatest > limit:
            ahead = times > limit
            if strict:
                row = int(np.argmax(ahead))
                raise TooFarAhead(
                    f"column {self.schema.time!r}, row {row}: {times[row]} is {times[row] - limit + self.max_future}"
                    f" microseconds ahead of the clock; {self.max_future} is the most"
                )
            counted = np.where(ahead, np.iinfo(np.int64).min // 2, times)
        oldest_yet = self._oldest(max(greatest - self.lateness, self._start()))
        if oldest_yet is None or least >= oldest_yet:
            return ahead, None
        before = np.maximum.accumulate(counted) - self.lateness
        before = np.concatenate(([self._start()], before[:-1]))
        np.maximum(before, self._start(), out=before)
        oldest = np.full(len(times), -(1 << 62))
        if self._geometries:
            oldest = np.minimum.reduce([g.oldest_at(before) for g in self._geometries])
        if self._floor is not None:
            oldest = np.maximum(oldest, self._floor)
        old = times < oldest
        if ahead is not None:
            old &= ~ahead
        if not old.any():
            return ahead, None
        if strict:
            row = int(np.argmax(old))
            raise TooOld(
                f"column {self.schema.time!r}, row {row}: {times[row]} is before {oldest[row]}, where the oldest"
                f" granularity begins at watermark {before[row]}"
            )
        return ahead, old

    def _start(self) -> int:
        """The watermark, or a time so early that nothing is older than it keeps."""
        return -(1 << 62) if self.watermark is None else self.watermark

    @property
    def oldest(self) -> int | None:
        """Tuples before this have aged out of every summary, for good; None as long as nothing has aged."""
        return self._floor if self.watermark is None else self._oldest(self.watermark)

    def _oldest(self, watermark: int) -> int | None:
        """The least timestamp kept at that watermark: by some summary, and not gone before."""
        least = min((g.oldest(watermark) for g in self._geometries), default=None)
        if least is None or self._floor is None:
            return self._floor if least is None else least
        return max(least, self._floor)

    def _advance(self, watermark: int) -> None:
        self.watermark = watermark
        for summary in self._summaries.values():
            summary.state.advance(watermark)
        oldest = self._floor = self._oldest(watermark)
        if oldest is not None:
            gone = self._log.release(oldest)
            for rows in gone:
                for summary in self._summaries.values():
                    summary.state.forget(rows)
            self._log.recycle(gone)

    def _count(self, reason: str, tuples: int) -> None:
        self._refused[reason] = self._refused.get(reason, 0) + tuples

    def advance(self, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more. It never moves back."""
        if not isinstance(watermark, int | np.integer) or not -FARTHEST <= watermark <= FARTHEST:
            raise WrongType(f"watermark {watermark!r} is no date; times are whole microseconds")
        with self._lock:
            self._advance(int(watermark) if self.watermark is None else max(int(watermark), self.watermark))

    # --- reading -------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[TupleLog]:
        """The log, still for as long as this is held."""
        with self._lock:
            yield self._log

    @property
    def count(self) -> int:
        """Tuples in the log, those that no summary keeps any more but whose chunk is still in use included."""
        with self._lock:
            return len(self._log)

    @property
    def kept(self) -> int:
        """Tuples that have not aged out."""
        with self._lock:
            return self._log.count_from(self.oldest)

    @property
    def refused(self) -> dict[str, int]:
        """Tuples refused so far, by reason."""
        with self._lock:
            return dict(self._refused)

    @property
    def nbytes(self) -> int:
        """Bytes of the log; each summary tells its own."""
        with self._lock:
            return self._log.nbytes

    def take(self, rows: NDArray[np.int32], columns: list[str] | None = None) -> pa.Table:
        """The tuples at these rows, in that order. Rows stay good until the next tuples come in."""
        with self._lock:
            return self._log.take(self._log.check_rows(rows), columns)


def _filter(column: Column, kept: NDArray[np.bool_]) -> Column:
    return Column(
        None if column.values is None else column.values[kept],
        None if column.text is None else column.text.filter(pa.array(kept)),
        None if column.nulls is None else column.nulls[kept],
    )


def _tuples(batch: Any) -> int:
    """How many tuples a batch seems to have, however wrong it is."""
    if isinstance(batch, pa.Table | pa.RecordBatch):
        return int(batch.num_rows)
    try:
        return max((len(c) for c in batch.values()), default=0)
    except (AttributeError, TypeError):
        return 0
