"""A stream: a log of tuples, the watermark they move, and the summaries that advance with it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import (
    BadCollapse,
    BadOptions,
    BadPackage,
    BatchError,
    BatchTooLarge,
    CeilingReached,
    CeilingTooLow,
    DuplicateName,
    NullKey,
    StorageError,
    StorageUnavailable,
    TokenReused,
    TooFarAhead,
    TooOld,
    UnknownName,
    WrongType,
)
from promising.index.auto_structure import FIRST, Auto
from promising.index.geometry import Geometry
from promising.index.journal import Journal
from promising.index.kernels.seal import extent
from promising.index.ledger import Ledger
from promising.index.load_plan import LoadPlan
from promising.index.log import CHUNK, TupleLog
from promising.index.options import AUTO, Options, Sizes
from promising.index.postings import Postings
from promising.index.prepared_load import Attached, Load
from promising.index.regions import Appended
from promising.index.schema import FARTHEST, Batch, Column, Schema, tuples_of
from promising.index.summary import Identity, SummaryState, forget
from promising.index.summary_index import SummaryIndex
from promising.index.time_text import instant, readable, rounded
from promising.index.unindexed import BareState
from promising.summaries.kernels.clock import work_ns

MINUTE = 60_000_000
LARGEST_BATCH = 1 << 22


def wall_clock() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class Stream:
    """A named, typed, append-only sequence of tuples with one event-time column.

    The watermark is the latest event time seen, less `lateness`; it never goes back. Each tuple is judged against the
    watermark before it, in order of arrival, so how a stream is cut into batches changes no answer; only zones of
    `G_1` may begin elsewhere. One writer at a time; readers see the state between two batches.

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
        self.max_tuples = max_tuples
        self.max_string_bytes = max_string_bytes
        self.clock = clock
        self.cpu: Callable[[], int] = work_ns
        """Tells what work costs, in nanoseconds: `STRUCTURE auto` goes by it."""
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
        self._ledger = Ledger()
        self._left: WeakKeyDictionary[Postings, str] = WeakKeyDictionary()  # by changes, and still read; their keys
        self._lock = RLock()
        self.journal: Journal | None = None
        """What is told of every change before it is made; None if nothing needs to outlive the process."""
        self.broken = False
        """Whether a change that the journal has was made only in part."""
        self.damages: list[str] = []
        """What was lost of it on disk, and where; a sentence each."""

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
            identity = Identity(
                name, key, geometry, self._sizes(structure, FIRST, options, geometry), structure == AUTO
            )
            state = self._empty(identity, options)
            state.floor = self.oldest
            self._fill(state)
            with self._told(lambda j: j.created(definition(state.identity, options))):
                summary = self._summaries[name] = self._indexed(state, options)
                self._changed()
        self.wait()
        return summary

    def _sizes(self, structure: str, now: str, options: Options, geometry: Geometry) -> Sizes:
        """Of a summary, which has the structure `now` if it may change."""
        given = (options, geometry, self._log.capacity, self.lateness)
        return Sizes.auto(now, *given) if structure == AUTO else Sizes.of(structure, *given)

    def _empty(self, identity: Identity, options: Options) -> SummaryState | BareState:
        sizes = identity.sizes
        if sizes.structure == "none":
            return BareState(identity, self._log, self.seed)
        try:
            return SummaryState(identity, options, self._log, self.seed)
        except MemoryError:
            raise CeilingTooLow(
                f"this machine cannot reserve the {sizes.ceiling:,} bytes these sizes need: lower buckets,"
                " depth, width, filter_bits or the stream's max_tuples, or use a granularity nearer to the"
                " lateness"
            ) from None

    def _fill(self, state: SummaryState | BareState) -> None:
        """Summarise the tuples that there are."""
        if self.watermark is None:
            return
        state.advance(self.watermark)
        rows = self._log.rows()
        if isinstance(state, BareState):
            state.accepted = len(rows)
            return
        for start in range(0, len(rows), LARGEST_BATCH):
            part = rows[start : start + LARGEST_BATCH]
            times = self._log.when(part)
            state.insert(self._log.hashes(state.identity.key, part, self.seed), part, times, *extent(times))

    def _indexed(self, state: SummaryState | BareState, options: Options) -> SummaryIndex:
        now = state.identity.sizes.structure
        auto = Auto(options.buckets, now, maxlength=options.maxlength) if state.identity.auto else None
        return SummaryIndex(state, self._lock, options, auto, self)

    def change(self, summary: SummaryIndex, structure: str) -> SummaryState | BareState:
        """Give a summary with `STRUCTURE auto` another structure, built of the tuples that there are.

        Questions are answered as before. What reads the postings it had goes on with them: they are told of no tuple
        that comes, but of those that go, for as long as somebody holds them. If it fails, nothing has changed.
        """
        with self._lock:
            old = summary.state
            sizes = self._sizes(AUTO, structure, summary.options, old.identity.geometry)
            state = self._empty(replace(old.identity, sizes=sizes), summary.options)
            state.floor = old.floor
            if isinstance(state, SummaryState):
                state.fine.number_after(summary.issued)  # no region of before is taken for one of now
            self._fill(state)
            ever = old.count + old.expired
            if isinstance(state, BareState):
                state.accepted = ever
            else:
                state.expired = ever - state.count
            if isinstance(old, SummaryState):
                old.postings.until = self._log.arrived
                self._left[old.postings] = old.identity.key
            return state

    def drop_summary(self, name: str) -> None:
        with self._lock:
            if name not in self._summaries:
                known = ", ".join(self._summaries) or "none"
                raise UnknownName(f"stream {self.name!r} has no summary {name!r}; it has {known}")
            with self._told(lambda j: j.dropped(name)):
                self._summaries.pop(name).dropped = True
                self._changed()
        self.wait()

    def _changed(self) -> None:
        self._keys = frozenset(s.key for s in self._summaries.values())
        self._geometries = {s.state.identity.geometry for s in self._summaries.values()}

    # --- writing -------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch,
        *,
        strict: bool = False,
        producer: str | None = None,
        sequence: int | None = None,
        wait: bool = True,
    ) -> Appended:
        """Add tuples. A malformed batch raises a `BatchError` and changes nothing.

        Tuples too old for every summary, or too far ahead of the clock, are left out and counted by reason; with
        `strict` they raise `TooOld` or `TooFarAhead` instead and nothing is added.

        producer, sequence: who sends, and the number of the batch, from 1 on. A batch that was added under them before
        is not added again. See `Ledger`.
        wait: return when the batch will not be lost. Without, `wait()` has to be called before anybody
        is told that it is in; if that raises, the batch may be in or not.
        """
        with self._lock:
            added = self.added(producer, sequence)
            if added is None:
                try:
                    added = self._append(batch, strict, producer, sequence)
                except BatchError as problem:
                    self._count(problem.reason, tuples_of(batch))
                    raise
                for summary in self._summaries.values():
                    summary.consider()
        if wait:
            self.wait()
        return added

    def wait(self) -> None:
        """Return when nothing that was added so far will be lost."""
        journal = self.journal
        if journal is not None:
            journal.wait()

    def added(self, producer: str | None, sequence: int | None) -> Appended | None:
        """What became of a batch that was added before under this number; None if there was none."""
        with self._lock:
            return self._ledger.find(producer, sequence)

    def _append(self, batch: Batch, strict: bool, producer: str | None, sequence: int | None) -> Appended:
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
        hashes = {}
        if len(times):
            watermark = max(greatest - self.lateness, self._start())
            self._log.check_room(len(times), columns, lambda: self._oldest(watermark))
            hashes = {key: self._log.hash_column(columns[key], self.seed) for key in self._keys}
        added = Appended(len(times), refused)
        with self._told(lambda j: j.appended(columns, len(times), added, producer, sequence)):
            self._enter(columns, hashes, times, least, greatest)  # from here on nothing can be refused
            self._note(added, producer, sequence)
        return added

    @contextmanager
    def _told(self, tell: Callable[[Journal], None]) -> Iterator[None]:
        """Tell the journal of a change, then make it in the block.

        What the journal has and memory only half, after an interruption or for want of memory, must not be changed any
        further, and never be written down: a start makes it whole.
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
        hashes: dict[str, NDArray[np.int64]],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
    ) -> None:
        """Add tuples that there is room for."""
        if not len(times):
            return
        self._advance(max(greatest - self.lateness, self._start()), len(times))
        self.latest = greatest if self.latest is None else max(self.latest, greatest)
        rows = self._log.write(columns, len(times))
        for summary in self._summaries.values():
            measured = summary.measured
            began = self.cpu() if measured else 0
            summary.state.insert(hashes[summary.key], rows, times, least, greatest)
            summary.inserted(len(rows), self.cpu() - began if measured else None)

    def _note(self, added: Appended, producer: str | None, sequence: int | None) -> None:
        for reason, count in added.refused.items():
            self._count(reason, count)
        self.accepted += added.accepted
        self._ledger.note(producer, sequence, added)

    def again(self, columns: dict[str, Column], added: Appended, producer: str | None, sequence: int | None) -> None:
        """Make a change again that the journal was told of: nothing is judged anew."""
        with self._lock:
            times = columns[self.schema.time].values
            assert times is not None
            hashes = {key: self._log.hash_column(columns[key], self.seed) for key in self._keys}
            self._enter(columns, hashes, times, *(extent(times) if len(times) else (0, 0)))
            self._note(added, producer, sequence)

    # --- loads ---------------------------------------------------------------------------------------------------

    def load_plan(self) -> LoadPlan:
        """What whoever prepares a load for this stream must know."""
        with self._lock:
            oldest = self.oldest
            return LoadPlan(
                self.name,
                dict(self.schema.types),
                self.schema.time,
                tuple(sorted(self._keys)),
                self.seed,
                self.watermark,
                self.lateness,
                min(self.clock() + self.max_future, FARTHEST),
                oldest,
                self._log.room(oldest),
                self._log.capacity,
                self.definitions(now=True),
            )

    def loaded(self, token: str, digest: int) -> Attached | None:
        """What became of a load that was taken in under this token; None if there was none."""
        with self._lock:
            known = f"load:{token}"
            found = self._ledger.find(known, digest)
            if found is not None:
                return Attached(found.accepted, found.refused, duplicate=True)
            if self._ledger.knows(known):
                raise TokenReused(
                    f"stream {self.name!r} has a load under the token {token!r} already, with other tuples; give this"
                    " one a token of its own if it is to be added too"
                )
            return None

    def has_loads(self, token: str | None = None) -> bool:
        """Whether any load that was taken in is remembered, or one under this token."""
        with self._lock:
            return self._ledger.any("load:") if token is None else self._ledger.knows(f"load:{token}")

    def attach(self, load: Load) -> Attached:
        """Take in a load, all of it at once. A token stands for one load, which is taken in once.

        It is no part of the journal: who keeps the stream on disk writes a checkpoint afterwards.
        """
        with self._lock:
            found = self.loaded(load.token, load.digest)
            if found is not None:
                return found
            self._check_whole()
            self._check_load(load)
            watermark = max(load.latest - self.lateness, self._start())
            with self._told(lambda j: j.advanced(watermark)):  # what comes after it may need the room of what ages now
                self._take_in(load, watermark)
            return Attached(load.tuples, dict(load.refused))

    def _check_load(self, load: Load) -> None:
        watermark = max(load.latest - self.lateness, self._start())
        if watermark < load.watermark:
            raise BadPackage(
                f"the load was planned when stream {self.name!r} had reached {instant(load.watermark)}, and it is at"
                f" {instant(watermark)}: it is not the stream of then; run the load again"
            )
        for part in load.parts:
            for key in self._keys.intersection(part.nulls):
                raise NullKey(f"column {key!r} is a key now, and the load has tuples without one")
        taken = self._chunks_of(load) * self._log.chunk
        room = self._log.room(self._oldest(watermark))
        if taken > room:
            raise CeilingReached(
                f"{load.tuples:,} tuples do not fit: the stream keeps up to {self._log.capacity:,} and has room for"
                f" {room:,}; raise max_tuples, or shorten what its summaries retain (GRANULARITY, COLLAPSE)"
            )

        texts = [c.text.nbytes for part in load.parts for c in (part.columns or {}).values() if c.text is not None]
        if self._log.string_bytes + sum(texts) > self.max_string_bytes:
            raise CeilingReached(
                f"the strings of the load, {sum(texts):,} bytes, do not fit: the stream keeps up to"
                f" {self.max_string_bytes:,} and has {self._log.string_bytes:,}; raise max_string_bytes"
            )

    def _chunks_of(self, load: Load) -> int:
        """Chunks that a load takes at most: for what comes in memory together, then of its own for each run."""
        chunk = self._log.chunk
        warm = sum(len(part) for part in load.parts if part.run is None)
        return sum(-(-len(part) // chunk) for part in load.parts if part.run is not None) + -(-warm // chunk)

    def _take_in(self, load: Load, watermark: int) -> None:
        self._advance(watermark, self._chunks_of(load) * self._log.chunk)
        self.latest = load.latest if self.latest is None else max(self.latest, load.latest)
        summed = {made["name"] for made in self.definitions(now=True) if load.summaries.get(made["name"]) == made}
        for part in sorted(load.parts, key=lambda part: part.run is not None):
            if part.run is not None:
                rows = self._log.adopt(part.run, part.times, part.nulls)
            else:
                assert part.columns is not None
                rows = self._log.write(part.columns, len(part))
            for name, summary in self._summaries.items():
                hashes = part.hashes.get(summary.key)
                if hashes is None:
                    hashes = self._log.hashes(summary.key, rows, self.seed)
                summary.state.attach(hashes, rows, part.times, part.sums.get(name) if name in summed else None)
        self._note(Appended(load.tuples, dict(load.refused)), f"load:{load.token}", load.digest)

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
                found = int(times[row])
                raise TooFarAhead(
                    f"column {self.schema.time!r}, row {row}: {instant(found)} is"
                    f" {rounded(found - limit + self.max_future)} ahead of the clock;"
                    f" {readable(self.max_future)} is the most"
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
                f"column {self.schema.time!r}, row {row}: {instant(int(times[row]))} is before"
                f" {instant(int(oldest[row]))}, where the oldest granularity begins at watermark"
                f" {instant(int(before[row]))}"
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

    def _advance(self, watermark: int, tuples: int = 0) -> None:
        """Age to a watermark, with room for so many tuples afterwards."""
        self.watermark = watermark
        for summary in self._summaries.values():
            began = self.cpu() if summary.measured else 0
            summary.state.advance(watermark)
            if summary.measured:
                summary.aging += self.cpu() - began
        oldest = self._floor = self._oldest(watermark)
        if oldest is not None:
            gone = self._log.release(oldest, tuples)
            for rows in gone:
                for summary in self._summaries.values():
                    began = self.cpu() if summary.measured else 0
                    summary.state.forget(rows)
                    if summary.measured:
                        summary.aging += self.cpu() - began
                for postings, key in self._left.items():
                    known = rows[self._log.arrivals(rows) < (postings.until or 0)]
                    if len(known):
                        forget(postings, self._log, key, self.seed, known)
            self._log.recycle(gone)

    def _count(self, reason: str, tuples: int) -> None:
        self._refused[reason] = self._refused.get(reason, 0) + tuples

    def advance(self, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more. It never moves back."""
        if not isinstance(watermark, int | np.integer) or not -FARTHEST <= watermark <= FARTHEST:
            raise WrongType(f"watermark {watermark!r} is no date; times are whole microseconds")
        with self._lock:
            reached = int(watermark) if self.watermark is None else max(int(watermark), self.watermark)
            with self._told(lambda j: j.advanced(reached)):
                self._advance(reached)
        self.wait()

    # --- to disk and back ----------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """All there is to know, as a tree of arrays; of cold tuples only where they are."""
        with self._lock:
            self._check_whole()
            return {
                "watermark": self.watermark,
                "latest": self.latest,
                "floor": self._floor,
                "refused": dict(self._refused),
                "accepted": self.accepted,
                "ledger": self._ledger.image(),
                "log": self._log.image(),
                "summaries": [_image(s) for s in self._summaries.values()],
            }

    def definitions(self, now: bool = False) -> list[dict[str, Any]]:
        """How the summaries were made; `now`: those that choose their structure as if made with the one they have.

        A load is prepared for the structure of now. If that is another one when it comes, it is summarised here.
        """
        with self._lock:
            return [definition(s.state.identity, s.options, now) for s in self._summaries.values()]

    def restore(self, image: dict[str, Any]) -> None:
        """Become what `image` was made of. The stream is new, and has no journal yet."""
        with self._lock:
            self.watermark, self.latest, self._floor = image["watermark"], image["latest"], image["floor"]
            self._refused, self.accepted = dict(image["refused"]), image["accepted"]
            self._ledger.restore(image["ledger"])
            self._log.restore(image["log"])
            for saved in image["summaries"]:
                identity, options = self._identified(saved)
                state = self._empty(identity, options)
                state.restore(saved)
                self._summaries[identity.name] = self._indexed(state, options)
                self._summaries[identity.name].reason(saved.get("why"))
            self._changed()

    def _identified(self, made: dict[str, Any]) -> tuple[Identity, Options]:
        options = Options(**made["options"])
        geometry = Geometry(made["granularity"], *made["collapse"])
        sizes = self._sizes(made["structure"], made.get("now", FIRST), options, geometry)
        return Identity(made["name"], made["key"], geometry, sizes, made["structure"] == AUTO), options

    def remake(self, made: dict[str, Any]) -> SummaryIndex:
        """A summary by its definition."""
        options = Options(**made["options"])
        return self.create_summary(
            made["name"],
            made["key"],
            granularity=made["granularity"],
            collapse=tuple(made["collapse"]),
            structure=made["structure"],
            options=options,
        )

    def rebuild(self) -> None:
        """Make every summary anew from the tuples that there are."""
        with self._lock:
            journal, self.journal = self.journal, None
            try:
                for made in self.definitions():
                    self._summaries.pop(made["name"]).dropped = True
                    self.remake(made)  # what the stream keeps does not change meanwhile
            finally:
                self.journal = journal

    # --- reading -------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[TupleLog]:
        """The log, still for as long as this is held."""
        with self._lock:
            yield self._log

    @property
    def arrived(self) -> int:
        """How many tuples have ever come: the arrival number of the next one. Waits for nobody."""
        return self._log.arrived

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


def _image(summary: SummaryIndex) -> dict[str, Any]:
    state, auto = summary.state, summary.auto
    chosen = {} if auto is None else {"now": summary.structure, "why": auto.why}
    return {**definition(state.identity, summary.options), **chosen, **state.image()}


def definition(identity: Identity, options: Options, now: bool = False) -> dict[str, Any]:
    """How a summary was made: all that it takes to make it again. See `Stream.definitions` for `now`."""
    geometry = identity.geometry
    return {
        "name": identity.name,
        "key": identity.key,
        "granularity": geometry.granularity,
        "collapse": [geometry.rate, geometry.depth],
        "structure": AUTO if identity.auto and not now else identity.sizes.structure,
        "options": asdict(options),
    }


def _filter(column: Column, kept: NDArray[np.bool_]) -> Column:
    return Column(
        None if column.values is None else column.values[kept],
        None if column.text is None else column.text.filter(pa.array(kept)),
        None if column.nulls is None else column.nulls[kept],
    )
