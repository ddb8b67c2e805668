"""Checks the extreme tuples of a stream against its tuples."""

from collections.abc import Iterator

from promising.index.extremes import BLOCK, Extremes
from promising.index.log import TupleLog
from promising.summaries.cells import same_images


def check_extremes(extremes: Extremes, log: TupleLog) -> Iterator[str]:
    """Violations; blocks with tuples that have been released are left out."""
    fresh = Extremes(extremes.columns)
    fresh.until = log.first_arrival
    while fresh.until < extremes.until:
        fresh.follow(log, min(BLOCK, extremes.until - fresh.until), warm=False)
    for name in extremes.columns:
        known, built = extremes.of(name), fresh.of(name)
        for block in range(fresh.blocks):
            number = fresh.first + block
            at = number - extremes.first
            if number * BLOCK < log.first_arrival:
                continue
            if not 0 <= at < extremes.blocks:
                yield f"there are no extremes of {name!r} for the arrivals from {number * BLOCK:,} on"
            elif not all(same_images(mine[at], other[block]) for mine, other in zip(known, built, strict=True)):
                yield f"the extremes of {name!r} from arrival {number * BLOCK:,} on are not those of its tuples"
