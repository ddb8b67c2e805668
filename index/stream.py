"""A stream: a log of tuples, their watermark, and the summaries that advance with it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import (
    BadCollapse,
    BadCounts,
    BadOptions,
    BatchError,
    BatchTooLarge,
    DuplicateName,
    NullKey,
    StorageError,
    StorageUnavailable,
    UnknownName,
)
from promising.index.admission import Retention, check_keep, judge
from promising.index.extremes import Extremes
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, FARTHEST
from promising.index.journal import Journal
from promising.index.kernels.seal import extent
from promising.index.ladder import Ladder
from promising.index.ledger import WEEK, Ledger
from promising.index.load_plan import LoadPlan
from promising.index.loads import LOADS, check_load, find_load, load_name, rows_for, take_in
from promising.index.log import MOST_ROWS, TupleLog
from promising.index.logged_batches import Logged, follow, merged, times_in, write
from promising.index.measure_changes import Built, MeasureChange
from promising.index.memory import Memory
from promising.index.options import Options
from promising.index.prepared_load import Attached, Load
from promising.index.progress import Pace, Progress, check_max_jump, check_reached, check_watermark
from promising.index.regions import Appended
from promising.index.schema import Batch, Column, Schema, text_bytes, tuples_of
from promising.index.stream_image import creation, definition, definitions, restore, stream_image
from promising.index.stream_summaries import StreamSummaries
from promising.index.summary import SummaryState
from promising.index.summary_builder import LARGEST_BATCH
from promising.index.summary_index import SummaryIndex
from promising.index.unindexed import BareState
from promising.summaries.counts import USUAL
from promising.summaries.kernels.clock import work_ns

MINUTE = 60_000_000


def wall_clock() -> int:
    return time.time_ns() // 1000


class Stream:
    """A named, typed, append-only sequence of tuples with one event-time column.

    The watermark is the latest event time seen less `lateness`, at most the clock; only `set_watermark` moves it back.
    Each tuple is checked against the watermark before it, in order of arrival, so the split into batches changes no
    answer; only zones of `G_1` may begin elsewhere. One writer at a time; readers see the state between two batches.

    All operations are in one class since they share the lock and the journal; the work is done by `admission`, `loads`,
    `stream_summaries` and `stream_image`.

    >>> stream = Stream("store1", {"ts": "timestamp", "item_id": "int"}, time="ts")
    >>> summary = stream.create_summary("s1", key="item_id", granularity=60_000_000, collapse=(4, 5))
    >>> stream.append({"ts": [0, 1_000_000, 2_000_000], "item_id": [7, 7, 9]})
    Appended(accepted=3, refused={}, duplicate=False)
    >>> summary.estimate([7, 8]).value
    array([2., 0.])
    >>> stream.take(summary.probe([7]).rows).column("ts").cast("int64").to_pylist()
    [1000000, 0]

    Parameters
    ----------
    schema: column names and their types: int, float, string, bool or timestamp.
    time: the event-time column.
    lateness: distance of the watermark behind the latest event time, in microseconds.
    keep: how long before the watermark tuples are retained, in microseconds; None: for ever. Whole zones are removed,
        none longer than an eighth of it. Nothing else removes tuples.
    max_future: a tuple dated later than the clock by more than this is refused.
    max_jump: a tuple further ahead of the watermark than this does not move it alone; see `Pace`. None: any does. The
        first batch and loads always do.
    clock: returns the time, in microseconds since the epoch.
    producers: how long the batches of a silent producer are remembered, in microseconds; see `Ledger`.
    max_tuples, max_string_bytes: what the stream may retain; a batch that does not fit is refused. None: it grows.
    seed: of the key hash; a secret of the installation. Summaries that are joined share it.
    """

    def __init__(
        self,
        name: str,
        schema: Mapping[str, str],
        time: str,
        *,
        lateness: int = 0,
        keep: int | None = None,
        max_future: int = 5 * MINUTE,
        max_jump: int | None = None,
        clock: Callable[[], int] = wall_clock,
        max_tuples: int | None = None,
        max_string_bytes: int | None = None,
        seed: int = 0,
        producers: int = WEEK,
    ) -> None:
        for what, span in (("lateness", lateness), ("max_future", max_future), ("producers", producers)):
            if not isinstance(span, int) or not 0 <= span <= FARTHEST:
                raise BadOptions(f"{what} must be whole microseconds, not negative, got {span!r}")
        check_max_jump(max_jump, lateness)
        if max_tuples is not None and not 1 <= max_tuples <= MOST_ROWS:
            raise BadOptions(f"max_tuples must be from 1 to {MOST_ROWS:,}, got {max_tuples:,}")
        if max_string_bytes is not None and (not isinstance(max_string_bytes, int) or max_string_bytes < 1):
            raise BadOptions(f"max_string_bytes must be a positive whole number, got {max_string_bytes!r}")
        if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
            raise BadOptions("the seed must be a whole number of 64 bits, signed")
        self.keep = check_keep(keep, lateness)
        self.name = name
        self.schema = Schema(dict(schema), time)
        self.lateness = lateness
        self.max_future = max_future
        self.max_jump = max_jump
        self.max_tuples = max_tuples
        self.max_string_bytes = max_string_bytes
        self.clock = clock
        self.cpu: Callable[[], int] = work_ns  # returns the CPU nanoseconds that `STRUCTURE auto` measures
        self.seed = seed
        self.progress = Progress()
        self.latest: int | None = None  # the latest event time accepted
        self._floor: int | None = None  # older times have been removed
        self._refused: dict[str, int] = {}
        self.accepted = 0
        self._log = TupleLog(self.schema, max_tuples, max_string_bytes)
        self._ledger = Ledger(producers)
        self._lock = RLock()
        self._summaries = StreamSummaries(self._log, lateness, seed, max_tuples is not None, self._lock, self)
        self.memory: Memory | None = None  # what all streams may have in memory, if that is limited
        self.journal: Journal | None = None  # logs every change before it is made; None: in memory only
        self.broken = False  # whether a logged change was made only in part
        self.damages: list[str] = []  # losses on disk, a sentence each

    # --- summaries -----------------------------------------------------------------------------------------------

    @property
    def summaries(self) -> dict[str, SummaryIndex]:
        return dict(self._summaries.by_name)

    def create_summary(
        self,
        name: str,
        key: str,
        *,
        granularity: int,
        collapse: tuple[int, int] = (4, 5),
        structure: str = "adaptive",
        options: Options | None = None,
        measures: Iterable[str] = (),
        using: str = USUAL,
    ) -> SummaryIndex:
        """Summarise one attribute, including tuples that the stream already has.

        granularity: `T_1`, in microseconds; collapse: (rate, depth). The memory ceiling is fixed here.
        measures: what its zones store beside counts of the key, for example "quantiles(price)"; see
        `summaries/cells.py`.
        using: how its cells count the key, see `summaries/counts.py`.
        """
        with self._lock:
            if name in self._summaries.by_name:
                raise DuplicateName(f"stream {self.name!r} already has a summary {name!r}")
            self.schema.check_key(key)
            if self._log.has_nulls(key):
                raise NullKey(f"column {key!r} cannot be a key: the stream holds tuples that have none")
            options = options or Options()
            if not isinstance(collapse, tuple | list) or len(collapse) != 2:
                raise BadCollapse(f"COLLAPSE is (rate, depth), not {collapse!r}")
            builder = self._summaries.builder
            geometry, kinds = Geometry(granularity, *collapse, self.keep), builder.kinds(measures)
            identity = builder.identity(name, key, geometry, structure, options, kinds=kinds, using=using)
            if structure == "none" and identity.using != USUAL:
                raise BadCounts(f"STRUCTURE none has no cells to count in; leave USING {identity.using.upper()} out")
            state = builder.filled(identity, options, self.watermark, self.oldest)
            with self._told(lambda j: j.created(definition(identity, options))):
                summary = self._summaries.add(state, options)
            self._summaries.catch_up(len(self._log))
        self.wait()
        return summary

    def change(self, summary: SummaryIndex, structure: str) -> SummaryState | BareState:
        """Rebuild a summary with `STRUCTURE auto` in another structure. Answers stay; see `StreamSummaries.changed`."""
        with self._lock:
            return self._summaries.changed(summary, structure, self.watermark)

    def set_measures(self, name: str, measures: Iterable[str]) -> Iterator[Built]:
        """Change what a summary measures; new measures are built from the stored tuples, in slices.

        Yields once it has begun, which keeps others from beginning, and after each slice, when the stream's lock is
        free. After the last one, measures are the new ones; before, they are the previous ones, and closing the
        iterator leaves those.
        """
        with self._lock:
            self._check_summary(name)
            change = MeasureChange(self._summaries.by_name[name], self._summaries.builder, measures)
        try:
            yield change.built
            while self._measure(change):
                yield change.built
            while self.catch_up(1 << 16):
                yield change.built
        finally:
            with self._lock:
                change.end()
        self.wait()

    def _measure(self, change: MeasureChange) -> bool:
        """A slice of a change of measures; returns whether any is left."""
        with change.summary.reading():
            self._check_whole()
            if change.step():
                return True
            change.prepare()
            texts = [str(kind.measure) for kind in change.kinds]
            with self._told(lambda j: j.altered({"measures": {"summary": change.summary.name, "are": texts}})):
                change.finish()
            self._summaries.climb()
            return False

    def catch_up(self, most: int) -> bool:
        """Add up to about so many tuples to the ladder and the extremes; returns whether some are left."""
        with self._lock:
            return self._summaries.catch_up(most)

    def catch_up_all(self) -> None:
        """Add all tuples to the ladder and the extremes, in slices, as after a load."""
        while self.catch_up(1 << 18):
            pass

    def drop_summary(self, name: str) -> None:
        with self._lock:
            self._check_summary(name)
            with self._told(lambda j: j.dropped(name)):
                self._summaries.drop(name)
        self.wait()

    def _check_summary(self, name: str) -> None:
        if name not in self._summaries.by_name:
            known = ", ".join(self._summaries.by_name) or "none"
            raise UnknownName(f"stream {self.name!r} has no summary {name!r}; it has {known}")

    # --- writing -------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch,
        *,
        strict: bool = False,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int = 0,
        resent: bool = False,
        wait: bool = True,
    ) -> Appended:
        """Add tuples. A malformed batch raises a `BatchError` and changes nothing.

        Tuples older than the stream keeps, or too far ahead of the clock, are omitted and counted by reason; with
        `strict` they raise `TooOld` or `TooFarAhead` instead and nothing is added.

        producer, sequence: the sender, and the number of the batch, from 1 on; with them a batch is added exactly once.
        See `Ledger`.
        epoch: of the producer: from the first batch of a higher one on, batches of lower ones raise `ProducerFenced`.
        resent: the sender has sent the batch before, and does not know its result.
        wait: return when the batch is durable. Otherwise call `wait()` before acknowledging it; if that raises, the
        batch may or may not be in the stream.
        """
        with self._lock:
            added = self.added(producer, sequence, epoch, resent=resent)
            if added is None:
                try:
                    added = self._append(batch, strict, producer, sequence, epoch)
                except BatchError as problem:
                    self._count(problem.reason, tuples_of(batch))
                    raise
                for summary in self._summaries.by_name.values():
                    summary.consider()
        if wait:
            self.wait()
        return added

    def wait(self) -> None:
        """Return when everything added so far is durable."""
        journal = self.journal
        if journal is not None:
            journal.wait()

    def added(
        self, producer: str | None, sequence: int | None, epoch: int = 0, *, resent: bool = False
    ) -> Appended | None:
        """The result of a batch that was added before under this number; None if there was none.

        A higher epoch than the producer's opens it even if the batch was added before.
        """
        with self._lock:
            found = self._ledger.find(producer, sequence, epoch, resent=resent)
            if found is not None and producer is not None and self._ledger.opens(producer, epoch):
                at = self.clock()
                with self._told(lambda j: j.opened(producer, epoch, at)):
                    self._ledger.open(producer, epoch, at)
            return found

    def open_again(self, producer: str, epoch: int, at: int) -> None:
        """Replay the opening of a producer."""
        with self._lock:
            self._ledger.open(producer, epoch, at)

    def _append(self, batch: Batch, strict: bool, producer: str | None, sequence: int | None, epoch: int) -> Appended:
        columns, times, least, greatest = self.schema.read(batch, self._summaries.keys)
        if len(times) > LARGEST_BATCH:
            raise BatchTooLarge(f"{len(times):,} tuples in one batch; {LARGEST_BATCH:,} is the most, so split it")
        by, pace = self._retention, self._pace(self.max_jump if self.accepted else None)
        judged = judge(
            times, least, greatest, by, pace, max_future=self.max_future, column=self.schema.time, strict=strict
        )
        taken, refused = judged.taken, judged.refused
        if taken is not None:
            columns = {name: column.filtered(taken) for name, column in columns.items()}
            times = times[taken]
            if len(times):
                least, greatest = extent(times)
        progress = pace.after(times, greatest if len(times) else BEGINNING)
        if len(times):
            assert progress.watermark is not None
            reached = progress.watermark
            self._log.check_room(len(times), columns, lambda: by.oldest(reached))
            if self.memory is not None and self._log.begins(len(times)):
                self._check_memory(len(times), len(times), text_bytes(columns))
        added, at = Appended(len(times), refused), self.clock()
        with self._told(lambda j: j.appended(columns, len(times), added, producer, sequence, progress, epoch, at)):
            self._enter(columns, times, least, greatest, progress)  # from here on nothing can be refused
            self._note(added, producer, sequence, epoch, at)
        return added

    def _check_memory(self, tuples: int, warm: int, strings: int) -> None:
        """Refuse tuples that the memory of all streams does not suffice for; `warm` of them are not on disk."""
        if self.memory is not None:
            more = warm * self._log.row_bytes + strings + tuples * self._summaries.tuple_bytes
            self.memory.claim(self, self._weight, more, tuples, durable=self.journal is not None)

    def weigh(self) -> None:
        """Report the bytes of tuples and postings in memory."""
        if self.memory is not None:
            with self._lock:
                self.memory.hold(self, self._weight)

    def leave(self) -> None:
        """It is dropped: its memory counts no more."""
        if self.memory is not None:
            self.memory.hold(self, 0)
            self.memory = None

    @property
    def _weight(self) -> int:
        return self._log.nbytes + self._summaries.postings_bytes

    @contextmanager
    def _told(self, tell: Callable[[Journal], None]) -> Iterator[None]:
        """Log a change in the journal, then make it in the block.

        If memory has only half of a logged change, after an interruption or for lack of memory, the stream must not be
        changed or checkpointed any more: a restart completes it.
        """
        if self.journal is None:
            yield
            return
        self._check_whole()
        told = False
        try:
            tell(self.journal)
            told = True
            yield
        except BaseException as problem:
            self.broken = told or not isinstance(problem, StorageError)
            raise

    def _check_whole(self) -> None:
        if self.broken:
            raise StorageUnavailable(
                f"stream {self.name!r} was interrupted in the middle of a change; open the store again, and it is whole"
            )

    def _enter(
        self,
        columns: dict[str, Column],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
        progress: Progress,
    ) -> None:
        self._move(progress, len(times))
        if not len(times):
            return
        self._saw(greatest)
        rows = self._log.write(columns, len(times))
        self._summaries.insert(self._hashes(columns, rows), rows, times, least, greatest)

    def _hashes(self, columns: dict[str, Column], rows: NDArray[np.int32]) -> dict[str, NDArray[np.int64]]:
        """Of the keys of tuples that have just been written."""
        return {key: self._log.hashes_of(key, columns[key], rows, self.seed) for key in self._summaries.keys}

    def _note(self, added: Appended, producer: str | None, sequence: int | None, epoch: int, at: int | None) -> None:
        for reason, count in added.refused.items():
            self._count(reason, count)
        self.accepted += added.accepted
        self._ledger.note(producer, sequence, added, epoch, at)

    def _count(self, reason: str, tuples: int) -> None:
        self._refused[reason] = self._refused.get(reason, 0) + tuples

    def again(self, first: Logged, following: Iterable[Logged] = ()) -> int:
        """Replay a logged batch, without admission or the clock, and those following that can be merged with it.

        Returns their number.
        """
        with self._lock:
            time = self.schema.time
            times = times_in(first.columns, time)
            least, greatest = extent(times) if len(times) else (BEGINNING, BEGINNING)
            progress = first.progress or Pace(self.progress, self.lateness, None).after(times, greatest)
            self._move(progress, len(times))
            batches = [first]
            if len(times):
                if self._follows(progress, least, greatest):
                    least, greatest = follow(batches, following, time, least, greatest, self._follows)
                self._saw(greatest)
                columns = merged(batches)
                rows = write(self._log, batches, columns)
                self._summaries.insert(self._hashes(columns, rows), rows, times_in(columns, time), least, greatest)
                if len(batches) > 1:
                    self._move(batches[-1].progress or progress)
            for batch in batches:
                self._note(batch.added, batch.producer, batch.sequence, batch.epoch, batch.at)
            return len(batches)

    def _follows(self, progress: Progress, least: int, greatest: int) -> bool:
        """Whether a batch with that progress moves nothing, and times in those bounds only extend the open zones."""
        watermark = progress.watermark
        if watermark is None or self._retention.oldest(watermark) != self._floor:
            return False
        if self._floor is not None and (least < self._floor or self._log.leaving(self._floor)):
            return False
        return self._summaries.extended_by(watermark, least, greatest)

    # --- loads ---------------------------------------------------------------------------------------------------

    def load_plan(self) -> LoadPlan:
        """The description of this stream for an external loader."""
        with self._lock:
            oldest, now = self.oldest, self.clock()
            return LoadPlan(
                self.name,
                dict(self.schema.types),
                self.schema.time,
                tuple(sorted(self._summaries.keys)),
                self.seed,
                self.watermark,
                self.lateness,
                min(now + self.max_future, FARTHEST),
                oldest,
                self._log.room(oldest),
                self._log.limit,
                self.definitions(now=True),
                self.keep,
                now,
            )

    def loaded(self, token: str, digest: int) -> Attached | None:
        """The result of a load attached under this token; None if there was none."""
        with self._lock:
            return find_load(self._ledger, self.name, token, digest)

    def has_loads(self, token: str | None = None) -> bool:
        """Whether any load is remembered, or one under this token."""
        with self._lock:
            return self._ledger.any(LOADS) if token is None else self._ledger.knows(load_name(token))

    def attach(self, load: Load) -> Attached:
        """Attach a load atomically, exactly once per token. Not logged: a durable stream needs a checkpoint after."""
        with self._lock:
            found = self.loaded(load.token, load.digest)
            if found is not None:
                return found
            self._check_whole()
            progress = self._pace(None).after(np.empty(0, np.int64), load.latest)
            assert progress.watermark is not None
            check_load(load, self.name, self._summaries.keys, self._retention, progress.watermark, self._log)
            warm = [part for part in load.parts if part.run is None]
            strings = sum(text_bytes(part.columns or {}) for part in warm)
            self._check_memory(load.tuples, sum(map(len, warm)), strings)
            with self._told(lambda j: j.advanced(progress)):  # later tuples may need the room of what ages now
                self._move(progress, rows_for(load, self._log))
                self._saw(load.latest)
                take_in(load, self._log, self._summaries.by_name, self.seed)
                self._note(
                    Appended(load.tuples, dict(load.refused)), load_name(load.token), load.digest, 0, self.clock()
                )
            self.weigh()
            return Attached(load.tuples, dict(load.refused))

    # --- watermark -----------------------------------------------------------------------------------------------

    @property
    def remembers(self) -> int:
        """How long the batches of a silent producer are remembered."""
        return self._ledger.retained

    @property
    def watermark(self) -> int | None:
        """None before the first tuple."""
        return self.progress.watermark

    @property
    def time(self) -> int | None:
        """The end of windows: the latest event time that counts, at most the clock; None before the first tuple."""
        return self.progress.now

    @property
    def _retention(self) -> Retention:
        return Retention(self.keep, self._summaries.geometries, self._floor)

    def _pace(self, jump: int | None) -> Pace:
        return Pace(self.progress, self.lateness, jump, self.clock())

    def set_keep(self, keep: int | None) -> int:
        """Retain tuples this long before the watermark; None: for ever. Returns how many tuples were removed.

        Summaries are rebuilt, as their zones depend on it. What was removed before does not return.
        """
        with self._lock:
            check_keep(keep, self.lateness)
            before = self.kept
            after = self._retention._replace(keep=keep, geometries=self._summaries.kept(keep))
            floor = self._floor if self.watermark is None else after.oldest(self.watermark)
            states = self._summaries.reshaped(keep, self.watermark, floor)
            with self._told(lambda j: j.altered({"keep": keep})):
                self.keep = keep
                self._summaries.reshape(states)
                self._move(self.progress)
            removed = before - self.kept
        self.wait()
        return removed

    def would_age(self, watermark: int) -> int:
        """How many tuples `set_watermark` would remove."""
        with self._lock:
            check_reached(watermark, self.clock())
            return max(self.kept - self._log.count_from(self._retention.oldest(watermark)), 0)

    def would_remove(self, keep: int | None) -> int:
        """How many tuples `set_keep` would remove."""
        with self._lock:
            check_keep(keep, self.lateness)
            if self.watermark is None:
                return 0
            after = self._retention._replace(keep=keep, geometries=self._summaries.kept(keep))
            return self.kept - self._log.count_from(after.oldest(self.watermark))

    @property
    def oldest(self) -> int | None:
        """Tuples before this have been removed; None while nothing has."""
        return self._floor

    def _saw(self, latest: int) -> None:
        self.latest = latest if self.latest is None else max(self.latest, latest)

    def _move(self, progress: Progress, tuples: int = 0) -> None:
        """Advance, and make room for so many tuples."""
        self.progress, watermark = progress, progress.watermark
        if watermark is None:
            return
        self._summaries.advance(watermark)
        oldest = self._floor = self._retention.oldest(watermark)
        if oldest is not None:
            gone = self._log.release(oldest, tuples)
            for rows in gone:
                self._summaries.forget(rows)
            self._log.recycle(gone)
            if gone:
                self._summaries.released(oldest)
                self.weigh()

    def advance(self, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more. It moves neither back nor beyond the clock."""
        reached = check_watermark(watermark)
        with self._lock:
            pace = self._pace(self.max_jump)
            check_reached(reached, pace.now)
            self._advance(pace.after(np.empty(0, np.int64)).advanced(reached))
        self.wait()

    def _advance(self, progress: Progress) -> None:
        with self._told(lambda j: j.advanced(progress)):
            self._move(progress)

    def advance_again(self, watermark: int, progress: Progress | None) -> None:
        """Replay a logged advance, whatever the clock. progress: after it; None in old logs."""
        with self._lock:
            self._move(self.progress.advanced(watermark) if progress is None else progress)

    def set_watermark(self, watermark: int) -> None:
        """Set the watermark, forward or back, but not beyond the clock; from then on only new tuples move it.

        Set back, every summary is rebuilt from the stored tuples: tuples that have been released stay so. Standing
        queries must be restarted.
        """
        wanted = check_watermark(watermark)
        with self._lock:
            check_reached(wanted, self.clock())
            if self.watermark is None or wanted >= self.watermark:
                self._advance(Progress.at(wanted))
            else:
                self._set_back(wanted)
        self.wait()

    def _set_back(self, watermark: int) -> None:
        floor = self._retention._replace(floor=None).oldest(watermark)
        states = self._summaries.refilled(watermark, floor)
        with self._told(lambda j: j.altered({"watermark": watermark})):
            self.progress, self._floor = Progress.at(watermark), floor
            self._summaries.reshape(states)

    def set_max_jump(self, max_jump: int | None) -> None:
        """Change MAX JUMP; None turns it off. Times that are doubted are judged anew with the next batch."""
        check_max_jump(max_jump, self.lateness)
        with self._lock, self._told(lambda j: j.altered({"max_jump": max_jump})):
            self.max_jump = max_jump
        self.wait()

    def alter(self, settings: dict[str, Any]) -> None:
        """Replay a logged change of settings, whatever the clock."""
        with self._lock:
            if "keep" in settings:
                self.set_keep(settings["keep"])
            if "watermark" in settings:
                self._set_back(settings["watermark"])
            if "max_jump" in settings:
                self.set_max_jump(settings["max_jump"])
            if "measures" in settings:
                for _ in self.set_measures(settings["measures"]["summary"], settings["measures"]["are"]):
                    pass

    # --- to disk and back ----------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """The state as a tree of arrays; of cold tuples only their location."""
        with self._lock:
            self._check_whole()
            figures = {
                "watermark": self.watermark,
                "counted": self.progress.counted,
                "time": self.progress.time,
                "doubted": list(self.progress.doubted),
                "max_jump": self.max_jump,
                "latest": self.latest,
                "floor": self._floor,
                "keep": self.keep,
                "refused": dict(self._refused),
                "accepted": self.accepted,
            }
            return stream_image(figures, self._ledger, self._log, self._summaries)

    def definitions(self, now: bool = False) -> list[dict[str, Any]]:
        """The definitions of the summaries; `now`: those that choose it get their current structure, as for a load."""
        with self._lock:
            return definitions(self._summaries.by_name.values(), now)

    def restore(self, image: dict[str, Any]) -> None:
        """Restore a new stream, without a journal, from `image`."""
        with self._lock:
            self.latest, self._floor = image["latest"], image["floor"]
            counted, time = image.get("counted", self.latest), image.get("time", self.latest)  # absent in old images
            self.max_jump = image.get("max_jump")
            self.progress = Progress(image["watermark"], counted, time, tuple(image.get("doubted", ())))
            self._refused, self.accepted = dict(image["refused"]), image["accepted"]
            self.keep = image.get("keep")  # without: of a version that kept everything
            restore(image, self._ledger, self._log, self._summaries)

    def remake(self, made: dict[str, Any]) -> SummaryIndex:
        return self.create_summary(**creation(made))

    def rebuild(self) -> None:
        """Rebuild every summary from the stored tuples."""
        with self._lock:
            self._summaries.rebuild(self.watermark, self.oldest)

    # --- reading -------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[TupleLog]:
        """The log, locked for the block."""
        with self._lock:
            yield self._log

    @property
    def ladder(self) -> Ladder | None:
        """Moments by spans of time, of the columns of which a summary has moments; use it inside `reading`."""
        return self._summaries.ladder

    @property
    def extremes(self) -> Extremes | None:
        """The tuples of the greatest magnitudes, of the columns of which a summary has moments; inside `reading`."""
        return self._summaries.extremes

    @property
    def arrived(self) -> int:
        """Tuples that ever arrived: the arrival number of the next one. Takes no lock."""
        return self._log.arrived

    @property
    def count(self) -> int:
        """Tuples in the log, including those that are no longer kept but whose chunk is still in use."""
        with self._lock:
            return len(self._log)

    @property
    def kept(self) -> int:
        with self._lock:
            return self._log.count_from(self.oldest)

    @property
    def refused(self) -> dict[str, int]:
        with self._lock:
            return dict(self._refused)

    @property
    def nbytes(self) -> int:
        """Bytes of the log, without the summaries."""
        with self._lock:
            return self._log.nbytes

    def take(self, rows: NDArray[np.int32], columns: list[str] | None = None) -> pa.Table:
        """The tuples at these rows, in that order. Rows are valid until the next tuples are added."""
        with self._lock:
            return self._log.take(self._log.check_rows(rows), columns)
