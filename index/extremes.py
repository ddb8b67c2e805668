"""The extreme tuples of a stream: those whose values of a measured column are the greatest in magnitude.

Of each block of `BLOCK` consecutive arrivals, the `TOP` tuples with the greatest |value|, by column. They depend on the
tuples and the order of their arrival only, not on batches, summaries or restarts. They are hints: whoever reads them
checks which are still retained.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.kernels.extremes import APART, MAGNITUDES, VALUES, add_extremes
from promising.index.log import TupleLog
from promising.summaries.reserved import longer

BLOCK = 1 << 14
TOP = 64
NONE = -1.0  # the size of a place without a tuple

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


class Extremes:
    """Follows a log in order of arrival. columns: by name with their types, of which numbers count.

    The caller holds the stream's lock. Block b has the tuples that arrived from (`first` + b) * BLOCK on.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = {name: kind for name, kind in columns.items() if kind in ("int", "float")}
        self.until = 0
        self.first = self.blocks = 0
        self._of = {name: _Column(0) for name in self.columns}

    def follow(self, log: TupleLog, most: int, *, warm: bool) -> bool:
        """Add up to about so many tuples that have arrived since; `warm`: only those in memory. Whether all are."""
        if not self.columns:
            self.until = log.arrived
        for rows, after in log.following(self.until, most, warm=warm):
            if len(rows):
                self.add(log, rows)
            self.until = after
        return self.until >= log.arrived

    def add(self, log: TupleLog, rows: NDArray[np.int32]) -> None:
        """Add these consecutive arrivals, all or, if one cannot be read, none."""
        read = [(log.values(name, rows), log.nulls(name, rows)) for name in self.columns]
        begin = int(log.arrivals(rows[:1])[0])
        self._reach(begin // BLOCK, (begin + len(rows) - 1) // BLOCK)
        for (values, nulls), column in zip(read, self._of.values(), strict=True):
            numbers = np.ascontiguousarray(values, np.float64)
            missing = np.empty(0, np.bool_) if nulls is None else np.ascontiguousarray(nulls, np.bool_)
            at = 0
            while at < len(numbers):
                arrival = begin + at
                stop = min(len(numbers), at + BLOCK - arrival % BLOCK)
                b = arrival // BLOCK - self.first
                add_extremes(
                    numbers[at:stop], missing[at:stop], arrival, column.sizes[b], column.arrivals[b], column.figures[b]
                )
                at = stop

    def _reach(self, first: int, last: int) -> None:
        if not self.blocks:
            self.first = first
        self.blocks = max(self.blocks, last + 1 - self.first)
        for column in self._of.values():
            column.reserve(self.blocks)

    def forget(self, arrival: int) -> None:
        """Tuples that arrived earlier are released: remove blocks without others, if they are many."""
        gone = min(max(arrival // BLOCK - self.first, 0), self.blocks)
        if 4 * gone > self.blocks:
            self.first, self.blocks = self.first + gone, self.blocks - gone
            for column in self._of.values():
                column.drop(gone)

    def of(self, name: str) -> tuple[Floats, Longs, Floats]:
        """By block: sizes, descending, with the arrivals they belong to, and `figures` (see the kernel); not copies."""
        column = self._of[name]
        return column.sizes[: self.blocks], column.arrivals[: self.blocks], column.figures[: self.blocks]

    def mean_size(self, name: str) -> float:
        """The mean magnitude of finite values; 0 without any."""
        figures = self.of(name)[2].sum(axis=0)
        return float(figures[MAGNITUDES] / max(figures[VALUES] - figures[APART], 1.0))

    @property
    def nbytes(self) -> int:
        return sum(c.sizes.nbytes + c.arrivals.nbytes + c.figures.nbytes for c in self._of.values())

    def image(self) -> dict[str, Any]:
        parts = ("sizes", "arrivals", "figures")
        of = {name: dict(zip(parts, (a.copy() for a in self.of(name)), strict=True)) for name in self.columns}
        return {"until": self.until, "first": self.first, "columns": dict(self.columns), "of": of}

    def restore(self, image: dict[str, Any] | None) -> None:
        """Restore from `image`, if it is of the same columns; otherwise it starts anew."""
        if image is None or image["columns"] != self.columns:
            return
        self.until, self.first = image["until"], image["first"]
        for name, column in self._of.items():
            saved = image["of"][name]
            column.sizes, column.arrivals, column.figures = (
                saved[part].copy() for part in ("sizes", "arrivals", "figures")
            )
            self.blocks = len(column.sizes)


class _Column:
    def __init__(self, blocks: int) -> None:
        self.sizes: Floats = np.full((blocks, TOP), NONE)
        self.arrivals: Longs = np.zeros((blocks, TOP), np.int64)
        self.figures: Floats = np.zeros((blocks, 3))

    def reserve(self, blocks: int) -> None:
        have = len(self.sizes)
        if blocks > have:
            room = max(blocks, have + have // 2)
            self.sizes = np.concatenate((self.sizes, np.full((room - have, TOP), NONE)))
            self.arrivals, self.figures = longer(self.arrivals, room), longer(self.figures, room)

    def drop(self, blocks: int) -> None:
        self.sizes, self.arrivals = self.sizes[blocks:].copy(), self.arrivals[blocks:].copy()
        self.figures = self.figures[blocks:].copy()
