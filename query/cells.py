"""What the cells of a stream, the spans of its calendar ladder, answer of a query, and what they rule out.

A span is *answered* if every tuple of it that the window has meets the conditions and has the same group key: its
moments go into the aggregates. It is *pruned* if none does. The tuples of all others are read, and those that arrived
after the ladder's last.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.index.ladder import Ladder
from promising.index.snapshot import Snapshot
from promising.query.aggregate.known import Known
from promising.query.bound import Bound
from promising.query.column_ranges import Limit, limits
from promising.query.scalar.compiled import Compiled, value_of
from promising.query.scalar.types import ARROW

ANSWERED = ("count", "sum", "avg", "min", "max")

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass
class Cells:
    """starts, ends: disjoint ascending ranges of time whose tuples are read, of those that arrived before `until`.

    answered, tuples: spans, and tuples of them. pruned: spans and their tuples, by reason. keys, known: the groups of
    the answered, and what is known of each aggregate.
    """

    until: int
    starts: Longs
    ends: Longs
    answered: int = 0
    tuples: int = 0
    pruned: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: list[pa.Array] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """Tuples of pruned spans."""
        return sum(tuples for _, tuples in self.pruned.values())


def has_cells(bound: Bound) -> bool:
    """Whether cells may help: they know nothing of keys, of other streams, or of the views of continuous queries.

    They know no order of rows either; that of an aggregate's tuples does not matter.
    """
    alone = len(bound.sources) == 1 and bound.join is None and bound.constants is None
    return alone and not bound.sources[0].is_view and (bound.preference is None or bound.grouped)


def cells_of(bound: Bound, snapshot: Snapshot) -> Cells | None:
    """What cells say of the tuples of a snapshot just taken, under the same lock; None if nothing."""
    ladder = bound.sources[0].stream.ladder
    if ladder is None or ladder.until > snapshot.until:
        return None
    return _Judged(bound, snapshot, ladder).cells()


class _Judged:
    def __init__(self, bound: Bound, snapshot: Snapshot, ladder: Ladder) -> None:
        self.bound = bound
        self.ladder = ladder
        self.time = snapshot.stream.schema.time
        self.start, self.end = snapshot.start, snapshot.end
        self.spans = ladder.within(self.start, self.end)
        self.first, self.last = ladder.first[self.spans], ladder.last[self.spans]

    def cells(self) -> Cells | None:
        if not len(self.spans):
            return None
        tuples = self.ladder.tuples[self.spans]
        inside: Mask = (self.first >= self.start) & (self.last < self.end)
        open_ = np.ones(len(self.spans), np.bool_)  # not yet pruned
        pruned: dict[str, tuple[int, int]] = {}
        for limit in limits(self.bound):
            every, none = self._met(limit)
            inside &= every
            out = open_ & none
            if limit is not None and out.any():
                spans, left = pruned.get(limit.name, (0, 0))
                pruned[limit.name] = spans + int(out.sum()), left + int(tuples[out].sum())
            open_ &= ~none
        answered = open_ & inside if self._answers() else np.zeros(len(self.spans), np.bool_)
        keys: list[pa.Array] = []
        if answered.any() and self.bound.group_keys:
            keys, same = self._keys()
            answered &= same
        read = open_ & ~answered
        found = Cells(
            self.ladder.until,
            np.maximum(self.first[read], self.start),
            np.minimum(self.last[read] + 1, self.end),
            int(answered.sum()),
            int(tuples[answered].sum()),
            pruned,
        )
        if found.answered:
            self._know(found, np.flatnonzero(answered), keys)
        return found if found.answered or found.pruned else None

    def _met(self, limit: Limit | None) -> tuple[Mask, Mask]:
        """In which spans every tuple meets a condition for certain, and in which none does."""
        spans, tuples = self.spans, self.ladder.tuples[self.spans]
        if limit is not None and limit.name == self.time:
            return _within(limit, self.first, self.last)
        if limit is None or limit.name not in self.ladder.moments:
            unsure = np.zeros(len(spans), np.bool_)
            return unsure, unsure
        moments = self.ladder.moments[limit.name]
        count, nan = moments.count[spans], moments.nan[spans]
        every, none = _within(limit, moments.least[spans], moments.greatest[spans])
        return every & (count == tuples) & (nan == 0), (none & (nan == 0)) | (count == 0)

    # --- aggregates ----------------------------------------------------------------------------------------------

    def _answers(self) -> bool:
        """Whether moments know every aggregate, and spans the group keys."""
        bound = self.bound
        known = bound.grouped and all(
            aggregate.function in ANSWERED and self._knows(argument, aggregate.function == "count")
            for aggregate, argument in zip(bound.aggregates, bound.arguments, strict=True)
        )
        return known and all(rises(bound, term) for term in bound.terms)

    def _knows(self, argument: Compiled | None, counted: bool) -> bool:
        if argument is None or (counted and _present(argument)):
            return True
        name = None if argument.column is None else argument.column.name
        return name == self.time or name in self.ladder.columns

    def _keys(self) -> tuple[list[pa.Array], Mask]:
        """The group keys of each span, and where they are those of all of its tuples."""
        same = np.ones(len(self.spans), np.bool_)
        keys = []
        for key in self.bound.group_keys:
            low, high = (keys_of(key, times) for times in (self.first, self.last))
            same &= low.cast(pa.int64()).to_numpy() == high.cast(pa.int64()).to_numpy()
            keys.append(low)
        return keys, same

    def _know(self, found: Cells, at: Longs, keys: list[pa.Array]) -> None:
        """Merge the moments of the spans at these places by group."""
        into, groups, firsts = np.zeros(len(at), np.int32), 1, at[:1]
        if keys:
            words = np.stack([key.cast(pa.int64()).to_numpy()[at] for key in keys])
            new = np.concatenate(([True], (words[:, 1:] != words[:, :-1]).any(axis=0)))  # keys never fall
            into, groups, firsts = (np.cumsum(new) - 1).astype(np.int32), int(new.sum()), at[new]
        found.keys = [key.take(pa.array(firsts)) for key in keys]
        spans = self.spans[at]
        rows = np.zeros(groups, np.int64)
        np.add.at(rows, into, self.ladder.tuples[spans])
        made: dict[str | None, Known] = {None: Known(rows)}
        for argument in self.bound.arguments:
            name = None if argument is None or argument.column is None else argument.column.name
            if name == self.time and name not in made:
                least, greatest = np.full(groups, np.iinfo(np.int64).max), np.full(groups, np.iinfo(np.int64).min)
                np.minimum.at(least, into, self.first[at])
                np.maximum.at(greatest, into, self.last[at])
                made[name] = Known(rows, least, greatest)
            elif name is not None and name not in made:
                made[name] = Known.of(self.ladder.merged(name, spans, into, groups))
            found.known.append(made[name])


def rises(bound: Bound, term: exp.Expression) -> bool:
    """Whether a group key never falls as time goes on: the time, or the time truncated."""
    node = term.unnest()
    if isinstance(node, exp.DateTrunc):
        node = node.this.unnest()
    time = bound.sources[0].stream.schema.time
    return isinstance(node, exp.Column) and bound.scope.resolve(node).name == time


def keys_of(key: Compiled, times: Longs) -> pa.Array:
    """A group key that reads the time only, of these times."""
    return key.evaluate(dict.fromkeys(key.inputs, _instants(times)), len(times))


def _within(limit: Limit, least: NDArray[Any], greatest: NDArray[Any]) -> tuple[Mask, Mask]:
    """Where all numbers from `least` to `greatest` are in a limit, and where none is."""
    every, none = np.ones(len(least), np.bool_), np.zeros(len(least), np.bool_)
    if limit.low is not None:
        every &= least > limit.low if limit.open else least >= limit.low
        none |= greatest <= limit.low if limit.open else greatest < limit.low
    if limit.high is not None:
        every &= greatest < limit.high if limit.open else greatest <= limit.high
        none |= least >= limit.high if limit.open else least > limit.high
    return every, none


def _present(argument: Compiled) -> bool:
    """Whether it is a constant that is not NULL."""
    value = value_of(argument)
    return value is not None and value.is_valid


def _instants(times: Longs) -> pa.Array:
    return pa.array(times).view(ARROW["timestamp"])
