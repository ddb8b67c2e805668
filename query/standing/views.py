"""Views: the results of a standing query, updated each tick, and their changes since a subscriber's last position."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from promising.errors import InternalError, PromisingError, Unsupported
from promising.index.instants import BEGINNING, NEVER
from promising.index.table import Table
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW
from promising.query.standing import plan
from promising.query.standing.deltas import POS, Counters, Ids, Mode, Times
from promising.query.standing.labels import Label, label, view_store
from promising.query.standing.operators.build import build
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Tick
from promising.query.standing.operators.table_join import TableJoinNode
from promising.query.standing.stores import store_for
from promising.query.standing.stream_source import Alike, Reader, StreamSource
from promising.summaries.kernels.clock import work_ns

REMEMBERED = 1 << 16  # retractions stored for subscribers that resume
SLOT = 100_000  # maximum microseconds of a calendar slot: about a tick


@dataclass(frozen=True)
class Seen:
    """A subscriber's position: the tick, the time, and the arrivals of each stream."""

    tick: int
    now: int
    positions: dict[str, int]


@dataclass(frozen=True)
class Changes:
    """Inserted results with their expiries, and results retracted before theirs."""

    reset: bool
    ids: Ids
    exp: Times
    retractions: Ids


class View(ABC):
    """A running standing query; several names may share it."""

    keyed = False
    endless = False
    width = 1

    def __init__(self, standing: plan.Standing, mode: Mode) -> None:
        self.standing = standing
        self.mode = mode
        self.names: set[str] = set()
        self.failed: PromisingError | None = None
        self.counters = Counters()
        self.cpu = 0  # nanoseconds spent
        self.grant = 0  # accrued nanoseconds of CPU for probes
        self.came = 0
        self.went = 0
        self.schema = pa.schema(
            [(name, ARROW[kind]) for name, kind in zip(standing.names, standing.kinds, strict=True)]
        )

    @property
    @abstractmethod
    def now(self) -> int:
        """The time up to which it is current."""

    @property
    @abstractmethod
    def tick(self) -> int:
        """The last tick applied."""

    @property
    @abstractmethod
    def changed(self) -> int:
        """The last tick in which anything was, or may have been, inserted, retracted or expired."""

    @property
    def readers(self) -> list[Reader]:
        return self._readers

    _readers: list[Reader]

    def open(self, sources: Callable[[plan.Window], StreamSource]) -> None:
        self._readers = []
        try:
            for select in selects(self.standing.root):
                inputs = needed(select)
                for window in plan.windows(select):
                    self._readers.append(sources(window).enter(window, inputs))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers = []

    @cached_property
    def label(self) -> Label:
        return label(self.standing.root)

    @property
    def sources(self) -> list[StreamSource]:
        return list(dict.fromkeys(reader.source for reader in self._readers))

    @property
    def positions(self) -> dict[str, int]:
        return {source.stream.name: source.rows.end for source in self.sources}

    @property
    def lag(self) -> int:
        """Microseconds of event time that have arrived and are not yet in the view."""
        times = [s.stream.time for s in self.sources if s.stream.time is not None]
        return max(0, max(times) - self.now) if times and self.now != BEGINNING else 0

    @abstractmethod
    def fill(self, number: int) -> None:
        """Apply the current content of the windows."""

    @abstractmethod
    def since(self, seen: Seen | None, *, same: bool) -> Changes:
        """The changes since a position. `same`: `seen` has ticks of this process; else only its arrivals count."""

    @property
    def alike(self) -> Alike | None:
        """The group whose subscribers at the last tick are read together."""
        return None

    @abstractmethod
    def rows(self, ids: Ids) -> pa.Table:
        """The rows of live results."""

    def followed(self, table: Table) -> list[int]:
        """The last change of a table that it has applied, for each place that reads it."""
        return []

    @property
    def watermark(self) -> int:
        """The view is correct as of this time."""
        return self.now

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @property
    @abstractmethod
    def store(self) -> str: ...

    shed = 0.0
    pending = False


class Selecting(View):
    """A plain selection: its results are the matches of the batches, so it stores nothing."""

    def __init__(self, standing: plan.Standing, mode: Mode) -> None:
        super().__init__(standing, mode)
        assert isinstance(standing.root, plan.StandingSelect)
        self._outputs = standing.root.outputs
        self.endless = plan.windows(standing.root)[0].length is None
        self._alike: Alike | None = None

    def open(self, sources: Callable[[plan.Window], StreamSource]) -> None:
        super().open(sources)
        reader = self._reader
        columns = [output.column for output in self._outputs]
        if reader.plain and all(columns):
            names = tuple(column.name for column in columns if column is not None)
            self._alike = reader.source.alike(reader.window.length, names, self.schema)

    @property
    def alike(self) -> Alike | None:
        return self._alike if self._start <= self._reader.source.rows.end else None

    @property
    def _reader(self) -> Reader:
        return self._readers[0]

    @property
    def now(self) -> int:
        return self._reader.source.clock

    @property
    def tick(self) -> int:
        return self._reader.source.number

    @property
    def changed(self) -> int:
        return max(self._filled, self._reader.source.changed.get(self._reader.window.length, 0))

    @property
    def positions(self) -> dict[str, int]:
        source = self._reader.source
        return {source.stream.name: max(source.rows.end, self._start)}

    def fill(self, number: int) -> None:
        self._filled = number
        self._start = self._reader.source.stream.arrived if self.endless else 0

    def since(self, seen: Seen | None, *, same: bool) -> Changes:
        name = self._reader.source.stream.name
        first = self._start if seen is None else seen.positions.get(name, 0)
        source = self._reader.source
        missed = self.endless and seen is not None and first < max(source.oldest, self._reader.first, self._start)
        ids, times = self._reader.since(max(first, self._start), self.now)
        length = self._reader.window.length
        exp = np.full(len(ids), NEVER) if length is None else times + length
        return Changes(seen is None or missed, ids[:, None], exp, np.empty((0, 1), np.int64))

    def rows(self, ids: Ids) -> pa.Table:
        given = gather(self._outputs, {self._reader.window.place: (self._reader, ids[:, 0])})
        return pa.Table.from_arrays([o.evaluate(given, len(ids)) for o in self._outputs], schema=self.schema)

    @property
    def size(self) -> int:
        return 0 if self.endless else len(self._reader.since(0, self.now)[0])

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def store(self) -> str:
        return "slices"


class Planned(View):
    """A query of several steps, with a store of its results."""

    now = BEGINNING
    tick = 0
    changed = 0

    def __init__(self, standing: plan.Standing, mode: Mode) -> None:
        super().__init__(standing, mode)
        if any(window.length is None for window in plan.windows(standing.root)):
            raise Unsupported(
                "a query without WINDOW is one SELECT from one stream; give each SELECT of this one a WINDOW"
            )
        root = standing.root
        self.keyed = isinstance(root, plan.StandingSelect) and root.grouped and not root.distinct
        self._retracted: deque[tuple[int, Ids]] = deque()
        self._held = 0
        self._forgot = 0  # the last tick whose retractions were discarded
        self._time = BEGINNING
        bodies = [select.body for select in selects(root)]
        self._tables = list({id(b.table): b.table for b in bodies if isinstance(b, plan.TableJoin)}.values())

    def open(self, sources: Callable[[plan.Window], StreamSource]) -> None:
        super().open(sources)
        self._leaves: list[Leaf] = []
        left = iter(self._readers)

        def leaf(window: plan.Window) -> Leaf:
            self._leaves.append(Leaf(next(left).source.rows, window.length, self.mode))
            return self._leaves[-1]

        self._node = build(self.standing, self.mode, leaf)
        self.width = self._node.width
        longest = max(reader.window.length or 0 for reader in self._readers)
        slot = max(1, min(SLOT, longest // 256))
        self._store = store_for(view_store(self.standing.root, self.mode), self.width, longest, slot)

    def fill(self, number: int) -> None:
        self.now = self.time()
        for reader, leaf in zip(self._readers, self._leaves, strict=True):
            leaf.arrive(*reader.since(0, self.now))
            reader.taken = reader.source.rows.end
        self._advance(number, self.now, None)
        if self.mode is Mode.ITA:  # it was given only live tuples, so this is their time
            self._advance(number, self.now, None, forced=True)
        self.tick = self.changed = number

    def time(self) -> int:
        """Now, by the clocks of its streams."""
        return max([self.now, *(source.clock for source in self.sources)])

    def step(self, number: int, allowance: Callable[[], bool] | None = None) -> None:
        """Apply this tick's arrivals."""
        self._timed(lambda: self._step(number, self.time(), allowance))
        self.tick = number

    def more(self, number: int, allowance: Callable[[], bool]) -> None:
        """Continue deferred work."""
        self._timed(lambda: self._advance(number, self.now, allowance))

    def _timed(self, work: Callable[[], None]) -> None:
        """Run work on the query's CPU account; an error fails the query."""
        began = work_ns()
        try:
            work()
        except PromisingError as problem:
            self.failed = problem
        except Exception as problem:  # an internal error must not stop the others
            self.failed = InternalError(f"the query failed with {type(problem).__name__}: {problem}")
            self.failed.__cause__ = problem
        except BaseException:
            self.failed = InternalError("the query was interrupted; drop it and create it again")
            raise
        finally:
            self.cpu += work_ns() - began

    def _step(self, number: int, now: int, allowance: Callable[[], bool] | None) -> None:
        idle = now == self.now and not self._node.pending
        for reader, leaf in zip(self._readers, self._leaves, strict=True):
            source = reader.source
            if reader.taken == source.rows.end:
                continue
            if source.fresh is not None:
                reader.late += int((source.fresh.ts <= now - (reader.window.length or 0)).sum())
            ids, times = reader.since(reader.taken, now)
            reader.taken = source.rows.end
            if len(ids):
                leaf.arrive(ids, times)
                idle = False
        if idle and not self._node.reads_tables:
            return
        self._advance(number, now, allowance)

    def _advance(self, number: int, now: int, allowance: Callable[[], bool] | None, *, forced: bool = False) -> None:
        tick = Tick(now, number, self.counters, allowance=allowance, forced=forced)
        with ExitStack() as still:
            for table in self._tables:
                still.enter_context(table.lock)
            deltas = self._node.step(tick)
        self.now = now
        store = self._store
        ended = 0
        if self.mode is not Mode.ITA:
            ended = store.expire(now)
        elif forced or deltas.time is not None:
            self._time = now if deltas.time is None else deltas.time
            ended = store.expire(self._time)
        if len(deltas):
            self._apply(deltas.ids, deltas.exp, deltas.kinds, number)
        if ended or len(deltas):
            self.changed = number

    def _apply(self, ids: Ids, exp: Times, kinds: np.ndarray, number: int) -> None:
        """Apply one tick: retractions first, then insertions, which may be the same results."""
        came = kinds == POS
        if not came.all():
            gone = ids[~came]
            self._store.remove(gone)
            self.went += len(gone)
            self._remember(number, gone)
            ids, exp = ids[came], exp[came]
        if len(ids):
            self._store.insert(ids, exp, number)
            self.came += len(ids)

    def _remember(self, number: int, ids: Ids) -> None:
        self._retracted.append((number, ids.copy()))
        self._held += len(ids)
        while self._held > max(REMEMBERED, 2 * len(self._store)) and len(self._retracted) > 1:
            self._forgot, gone = self._retracted.popleft()
            self._held -= len(gone)

    def since(self, seen: Seen | None, *, same: bool) -> Changes:
        none = np.empty((0, self.width), np.int64)
        if seen is not None and same and seen.tick >= self._forgot:
            ids, exp = self._store.since(seen.tick)
            gone = [retracted for number, retracted in self._retracted if number > seen.tick]
            retractions = np.concatenate(gone) if gone else none
            if self.keyed and len(retractions):
                retractions = self._empty_groups(retractions)
            return Changes(False, ids, exp, retractions)
        ids, exp, _ = self._store.live()
        if seen is None or same or not self.positional:
            return Changes(True, ids, exp, none)
        new = np.zeros(len(ids), np.bool_)
        for place, reader in enumerate(self._readers):
            new |= ids[:, place] >= seen.positions[reader.source.stream.name]
        return Changes(False, ids[new], exp[new], none)

    def _empty_groups(self, retracted: Ids) -> Ids:
        """One retracted version of each group that has no live version."""
        groups = np.unique(retracted[:, 0])
        ids, _, _ = self._store.live()
        gone = groups[~np.isin(groups, ids[:, 0])]
        return np.stack([gone, np.zeros_like(gone)], axis=1)

    @property
    def positional(self) -> bool:
        """Whether tuples identify a result across processes, so that arrivals alone determine what is new."""
        root = self.standing.root
        if not isinstance(root, plan.StandingSelect) or not isinstance(root.body, plan.Join) or may_wait(self.standing):
            return False
        return not root.distinct and not root.grouped

    def rows(self, ids: Ids) -> pa.Table:
        return pa.Table.from_arrays(self._node.values(ids), schema=self.schema)

    def followed(self, table: Table) -> list[int]:
        if self.failed is not None:
            return []
        found, waiting = [], [self._node]
        while waiting:
            node = waiting.pop()
            waiting += node.children
            if isinstance(node, TableJoinNode) and node.table is table:
                found.append(node.seen)
        return found

    @property
    def watermark(self) -> int:
        return self._time if self.mode is Mode.ITA else self.now

    @property
    def size(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._node.nbytes

    @property
    def store(self) -> str:
        return self._store.name

    @property
    def shed(self) -> float:  # type: ignore[override]
        return self._node.shed

    @property
    def pending(self) -> bool:  # type: ignore[override]
        return bool(self._node.pending)


def may_wait(standing: plan.Standing) -> bool:
    """Whether a query may defer work: it has a budget or a preference."""
    return standing.budget is not None or standing.preference is not None


def selects(query: plan.Query) -> Iterator[plan.StandingSelect]:
    if isinstance(query, plan.SetOperation):
        yield from selects(query.left)
        yield from selects(query.right)
    else:
        yield query


def needed(select: plan.StandingSelect) -> frozenset[Input]:
    """All columns that a SELECT uses."""
    body = select.body
    used: list[Compiled | None] = [*select.outputs, *select.keys, *select.arguments, select.having]
    used += [p for window in plan.windows(select) for p in window.predicates]
    parts = [body, body.left] if isinstance(body, plan.Exists) else [body]
    for part in parts:
        if isinstance(part, plan.Join | plan.Exists):
            used += [side for pair in part.keys for side in pair]
        if isinstance(part, plan.TableJoin):
            used.append(part.key)
        if isinstance(part, plan.Join | plan.TableJoin):
            used += part.residual
    return frozenset(i for one in used if one is not None for i in one.inputs)


def gather(expressions: tuple[Compiled, ...], at: dict[int, tuple[Reader, np.ndarray]]) -> dict[Input, pa.Array]:
    """The input columns of expressions at these arrivals."""
    out: dict[Input, pa.Array] = {}
    for wanted in {i for e in expressions for i in e.inputs}:
        reader, ids = at[wanted.source]
        out[wanted] = reader.source.rows.take(wanted.name, ids)
    return out
