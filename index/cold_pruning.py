"""Which cold tuples may meet range conditions, by the bounds that their row groups have of each column.

One-sided: a tuple left out does not meet them; one that is not may or may not. Reads footers only.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from promising.index.snapshot import Rows, Snapshot
from promising.index.storage.cold import Cold

Mask = NDArray[np.bool_]


class ColdPruning:
    """ranges: the least and the greatest relevant value, by column of numbers or times. NaN is above all.

    pruned: by column, how many row groups were left out, and how many of the rows asked about were in them.
    """

    def __init__(self, snapshot: Snapshot, ranges: Mapping[str, tuple[int | float, int | float]]) -> None:
        self.snapshot = snapshot
        self._ranges = dict(ranges)
        self._reasons = list(self._ranges)
        self._files: dict[int, NDArray[np.int8]] = {}  # by run: of each group the first range that it misses, or -1
        self._met: dict[int, Mask] = {}
        self._tuples = np.zeros(len(self._reasons), np.int64)

    @property
    def pruned(self) -> dict[str, tuple[int, int]]:
        groups = np.zeros(len(self._reasons), np.int64)
        for run, reasons in self._files.items():
            groups += np.bincount(reasons[self._met[run] & (reasons >= 0)], minlength=len(groups))
        found = zip(self._reasons, groups.tolist(), self._tuples.tolist(), strict=True)
        return {name: (g, tuples) for name, g, tuples in found if tuples}

    def possible(self, rows: Rows) -> Mask | None:
        """Which of these rows may meet the conditions; None for all. Call it inside `holding`."""
        out: Mask | None = None
        with self.snapshot.stream.reading() as log:
            parts, cold = list(log.cold_parts(rows)), log.reader
        if not parts or not isinstance(cold, Cold):
            return None
        for part in parts:
            reasons = self._reasons_of(cold, part.run)
            groups = cold.group_of(part.run)[part.offsets]
            why = reasons[groups]
            left_out = why >= 0
            if left_out.any():
                self._met[part.run][groups[left_out]] = True
                self._tuples += np.bincount(why[left_out], minlength=len(self._tuples))
                out = np.ones(len(rows), np.bool_) if out is None else out
                out[part.where[left_out]] = False
        return out

    def _reasons_of(self, cold: Cold, run: int) -> NDArray[np.int8]:
        found = self._files.get(run)
        if found is None:
            _, footer = cold.file(run)
            found = np.full(len(footer.rows), -1, np.int8)
            for number, (name, (low, high)) in enumerate(self._ranges.items()):
                column = footer.index(name)
                for group in np.flatnonzero(found < 0).tolist():
                    extent = footer.extent(group, column)
                    if extent is not None and (extent[1] < low or extent[0] > high):
                        found[group] = number
            self._files[run], self._met[run] = found, np.zeros(len(found), np.bool_)
        return found
