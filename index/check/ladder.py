"""Checks the calendar ladder of a stream against its tuples."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from promising.index.instants import BEGINNING
from promising.index.ladder import Ladder
from promising.index.log import TupleLog
from promising.index.time_text import instant
from promising.summaries.cells import same_images


def check_ladder(
    ladder: Ladder, log: TupleLog, oldest: int | None, parts: Iterable[NDArray[np.int32]]
) -> Iterator[str]:
    """Violations; spans with tuples that have been removed are left out. parts: all rows."""
    fresh = Ladder(ladder.columns)
    fresh.minutes, fresh.hours = ladder.minutes, ladder.hours
    for part in parts:
        rows = part[log.arrivals(part) < ladder.until]
        if len(rows):
            fresh.add(log, rows)
    least = BEGINNING if oldest is None else oldest
    known = {int(ladder.starts[at]): at for at in range(ladder.size) if ladder.first[at] >= least}
    if len(np.unique(ladder.starts[: ladder.size])) != ladder.size:
        yield "the ladder has two spans that begin at one time"
    for start in fresh.starts[: fresh.size].tolist():
        at = np.flatnonzero(fresh.starts[: fresh.size] == start)[0]
        if start in known:
            it = known.pop(start)
            if not same_images(_image(ladder, it), _image(fresh, int(at))):
                yield f"the ladder's span from {instant(start)} on is not that of its tuples"
        elif fresh.first[at] >= least and not (ladder.starts[: ladder.size] == start).any():
            yield f"the ladder lacks the span from {instant(start)} on"
    for start in known:
        yield f"the ladder has a span from {instant(start)} on, which has no tuples"


def _image(ladder: Ladder, at: int) -> dict[str, object]:
    moments = {name: of.take(np.array([at])).image() for name, of in ladder.moments.items()}
    figures = (ladder.tuples[at], ladder.first[at], ladder.last[at])
    return {"figures": [int(figure) for figure in figures], **moments}
