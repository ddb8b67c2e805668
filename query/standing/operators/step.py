"""Steps of a standing plan: in each tick, a step pulls its inputs and emits its changes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW, Kind
from promising.query.standing.deltas import POS, Counters, Deltas, Ids, Mode, Times, joined, nothing


class Rows(Protocol):
    """The columns of a stream's tuples or of a table's versions."""

    def take(self, column: str, ids: NDArray[np.int64]) -> pa.Array:
        """Values at these numbers, in any order, in the Arrow type of their kind."""
        ...


@dataclass(slots=True)
class Tick:
    """One round of work. `forced` (`ita` only): only advances the time to `now`, without arrivals."""

    now: int
    number: int
    counters: Counters
    forced: bool = False
    allowance: Callable[[], bool] | None = None  # for joins with a budget: whether more work is allowed


class Step(ABC):
    """A step. `width` numbers identify a result.

    A receiver first expires what ends by `Deltas.time`, then applies retractions, then insertions: an expired or
    retracted result may be inserted again in the same tick.
    """

    width: int
    mode: Mode
    children: "tuple[Step, ...]" = ()
    kinds: tuple[Kind, ...] = ()  # of its outputs
    span: int | None = None  # maximum lifetime of a result, if known
    clock: int | None = None  # latest time received; `ita` only

    @abstractmethod
    def step(self, tick: Tick) -> Deltas:
        """The changes since the last tick."""

    def values(self, ids: Ids) -> list[pa.Array]:
        """The output columns of results that are live, or were when the tick began."""
        raise TypeError(f"{type(self).__name__} has no outputs of its own")

    @property
    def nbytes(self) -> int:
        """Bytes held by this step and those below."""
        return self.own_bytes() + sum(child.nbytes for child in self.children)

    def state(self) -> int:
        """Entries held by this step and those below."""
        return self.own_entries() + sum(child.state() for child in self.children)

    @property
    def shed(self) -> float:
        """Results dropped for lack of time, here and below."""
        return sum(child.shed for child in self.children)

    @property
    def pending(self) -> bool:
        """Whether deferred work remains, here or below."""
        return any(child.pending for child in self.children)

    @property
    def deferred(self) -> bool:
        """Whether work was ever deferred, so that results may be later than their tuples."""
        return any(child.deferred for child in self.children)

    @property
    def reads_tables(self) -> bool:
        """Whether results can change without arrivals or time."""
        return any(child.reads_tables for child in self.children)

    def own_bytes(self) -> int:
        return 0

    def own_entries(self) -> int:
        return 0

    def pull(self, tick: Tick) -> tuple[list[Deltas], int | None]:
        """The children's changes and the time, in `ita` the latest that a child received; None: nothing to do."""
        parts = [child.step(tick) for child in self.children]
        if self.mode is not Mode.ITA:
            return parts, tick.now
        if tick.forced:
            self.clock = tick.now
            return parts, tick.now
        told = [part.time for part in parts if part.time is not None]
        if not told:
            return parts, None
        time = max([*told, *clocks(self)])  # also of steps that sent nothing
        self.clock = time
        if len(parts) > 1:
            late = replace(tick, now=time, forced=True)
            for at, (child, part) in enumerate(zip(self.children, parts, strict=True)):
                if part.time is None or part.time < time:
                    both = net([part, child.step(late)], time)
                    over = both.exp <= time  # every receiver of this time expires them, whatever happened before
                    parts[at] = chosen(both, ~over) if over.any() else both
        return parts, time


class Body(Step):
    """A step whose results are combined tuples: expressions find columns by source."""

    sources: dict[int, tuple[Rows, int]]
    """By position in FROM: the columns, and which column of the ids has the numbers."""

    def columns(self, inputs: Iterable[Input], ids: Ids) -> dict[Input, pa.Array]:
        found: dict[Input, pa.Array] = {}
        numbers: dict[int, NDArray[np.int64]] = {}
        for one in inputs:
            rows, column = self.sources[one.source]
            if column not in numbers:
                numbers[column] = np.ascontiguousarray(ids[:, column])
            found[one] = rows.take(one.name, numbers[column])
        return found

    def evaluate(self, expressions: Sequence[Compiled], ids: Ids) -> list[pa.Array]:
        if not len(ids):
            return [pa.array([], ARROW[one.kind]) for one in expressions]
        columns = self.columns(frozenset[Input]().union(*(one.inputs for one in expressions)), ids)
        return [one.evaluate(columns, len(ids)) for one in expressions]

    def meets(self, predicates: Sequence[Compiled], ids: Ids) -> NDArray[np.bool_]:
        """Which results satisfy all predicates, each evaluated where the previous ones hold. Gathers a column once."""
        left: NDArray[np.int64] | None = None  # all
        columns: dict[Input, pa.Array] = {}
        for predicate in predicates:
            some = ids if left is None else ids[left]
            columns |= self.columns(predicate.inputs - columns.keys(), some)
            met = truth(predicate.evaluate(columns, len(some)))
            if not met.all():
                left = np.flatnonzero(met) if left is None else left[met]
                kept = pa.array(met)
                columns = {one: array.filter(kept) for one, array in columns.items()}
        if left is None:
            return np.ones(len(ids), np.bool_)
        out = np.zeros(len(ids), np.bool_)
        out[left] = True
        return out


def clocks(node: Step) -> list[int]:
    """The latest times received by a step and those below."""
    below = [time for child in node.children for time in clocks(child)]
    return below if node.clock is None else [node.clock, *below]


def truth(found: pa.Array) -> NDArray[np.bool_]:
    """Where a condition is true: neither false nor NULL."""
    if pa.types.is_null(found.type):
        return np.zeros(len(found), np.bool_)
    out: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return out


def missing(arrays: Sequence[pa.Array], rows: int) -> NDArray[np.bool_] | None:
    """Where any is NULL; None: nowhere."""
    some = [array for array in arrays if array.null_count]
    if not some:
        return None
    out = np.zeros(rows, np.bool_)
    for array in some:
        out |= array.is_null().to_numpy(zero_copy_only=False)
    return out


def split(deltas: Deltas) -> tuple[Deltas, Deltas]:
    """The retractions, and the insertions."""
    if not len(deltas):
        return deltas, deltas
    came = deltas.kinds == POS
    if came.all():
        return nothing(deltas.ids.shape[1], deltas.time), deltas
    return chosen(deltas, ~came), chosen(deltas, came)


def chosen(deltas: Deltas, rows: NDArray[np.bool_] | NDArray[np.integer]) -> Deltas:
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)  # once instead of for each column
    return Deltas(deltas.ids[rows], deltas.ts[rows], deltas.exp[rows], deltas.kinds[rows], deltas.time)


def rows_of(ids: Ids, ts: Times, exp: Times, kind: int, time: int | None = None) -> Deltas:
    return Deltas(ids, ts, exp, np.full(len(ts), kind, np.int8), time)


def net(parts: list[Deltas], time: int | None) -> Deltas:
    """The concatenation of changes, without results that are inserted and removed within it."""
    parts = [part for part in parts if len(part)] or parts[:1]
    whole = joined(parts, time)
    if len(parts) == 1 or bool((parts[-1].kinds == POS).all()):
        return whole
    came: dict[tuple[int, ...], int] = {}
    kept = np.ones(len(whole), np.bool_)
    for at, (row, kind) in enumerate(zip(whole.ids.tolist(), whole.kinds.tolist(), strict=True)):
        if kind == POS:
            came[tuple(row)] = at
        elif tuple(row) in came:
            kept[came.pop(tuple(row))] = kept[at] = False
    return chosen(whole, kept)


def handed(tick: Tick, deltas: Deltas) -> Deltas:
    """Counts the changes, and returns them."""
    if len(deltas):
        came = int(np.count_nonzero(deltas.kinds == POS))
        tick.counters.positives += came
        tick.counters.negatives += len(deltas) - came
    return deltas


def told(tick: Tick, mode: Mode, parts: list[Deltas], width: int, time: int, ends: Times) -> Deltas:
    """Output changes of a step with its time. `ends`: when results expired on this edge.

    The time is sent only with other changes or where something expired. `time` sends a message for each distinct
    expiry, `piggyback` one where no change can carry it, `ita` and `nta` none.
    """
    parts = [part for part in parts if len(part)]
    said: int | None = time
    if not parts:
        if mode is Mode.ITA or (mode is not Mode.NTA and not len(ends)):
            said = None
        if mode is Mode.PIGGYBACK and len(ends):
            tick.counters.times += 1
    if mode is Mode.TIME and len(ends):
        tick.counters.times += len(np.unique(ends))
    return handed(tick, joined(parts, said) if parts else nothing(width, said))
