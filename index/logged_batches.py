"""Batches of a log, replayed: adjacent ones are merged and inserted at once, with the result of one by one to the bit.

A batch can follow another if its watermark moves nothing (no zone, no tuple leaves) and all tuples of both go to the
open zone of every summary: there a batch is only a share of the sequence. Small batches cost a call each otherwise.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.kernels.seal import extent
from promising.index.log import TupleLog
from promising.index.progress import Progress
from promising.index.regions import Appended
from promising.index.schema import Column

MOST = 1 << 16  # tuples of several batches that are inserted at once


class Logged(Protocol):
    """A batch as it was added; progress: of the stream after it; at: by the clock. Both are None in old logs."""

    @property
    def columns(self) -> dict[str, Column]: ...

    @property
    def tuples(self) -> int: ...

    @property
    def added(self) -> Appended: ...

    @property
    def producer(self) -> str | None: ...

    @property
    def sequence(self) -> int | None: ...

    @property
    def progress(self) -> Progress | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def at(self) -> int | None: ...


Follows = Callable[[Progress, int, int], bool]


def times_in(columns: dict[str, Column], time: str) -> NDArray[np.int64]:
    times = columns[time].values
    assert times is not None
    return times


def follow(
    batches: list[Logged], following: Iterable[Logged], time: str, least: int, greatest: int, follows: Follows
) -> tuple[int, int]:
    """Append to `batches` those that can follow; returns their least and greatest time.

    least, greatest: so far. follows: whether a batch with that progress can follow, for times in those bounds.
    """
    total = batches[0].tuples
    for batch in following:
        total += batch.tuples
        if batch.progress is None or not batch.tuples or total > MOST:
            break
        low, high = extent(times_in(batch.columns, time))
        low, high = min(low, least), max(high, greatest)
        if not follows(batch.progress, low, high):
            break
        batches.append(batch)
        least, greatest = low, high
    return least, greatest


def merged(batches: Sequence[Logged]) -> dict[str, Column]:
    """The columns of all batches, in order."""
    if len(batches) == 1:
        return batches[0].columns
    return {name: _joined([batch.columns[name] for batch in batches]) for name in batches[0].columns}


def write(log: TupleLog, batches: Sequence[Logged], columns: dict[str, Column]) -> NDArray[np.int32]:
    """Append `batches`, which together have these `columns`; returns their rows."""
    if not log.has_strings:
        return log.write(columns, sum(batch.tuples for batch in batches))
    rows = [log.write(batch.columns, batch.tuples) for batch in batches]  # the room of strings grows by batch
    return np.concatenate(rows)


def _joined(columns: list[Column]) -> Column:
    nulls = None
    if any(column.nulls is not None for column in columns):
        nulls = np.concatenate([np.zeros(_length(c), np.bool_) if c.nulls is None else c.nulls for c in columns])
    if columns[0].values is None:
        return Column(None, pa.concat_arrays([column.text for column in columns]), nulls)
    return Column(np.concatenate([column.values for column in columns if column.values is not None]), None, nulls)


def _length(column: Column) -> int:
    return len(column.text if column.values is None else column.values)
