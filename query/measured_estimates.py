"""What the measures of a summary say about the entries of a promising set."""

import math
from collections.abc import Generator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import BadQuestion
from promising.index.measure_reading import complete, window_measure
from promising.index.regions import Window
from promising.index.zone import buckets_of
from promising.query.preference import EstimatedMeasure
from promising.query.scalar.scope import Input
from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind

Numbers = NDArray[np.float64]

REMEMBERED = 1 << 16  # frequencies of values, at most as many again as a slice has


class MeasuredEstimate:
    """One estimate of a preference, about the tuples in the window.

    Of a measure with a state per cell it is that of the cells that the entry's key falls into, taken together; of a
    measure with one per zone it is the same for all entries, except for a frequency, which is that of an entry's value.
    Read once: tuples that arrive later change nothing.
    """

    def __init__(self, asked: EstimatedMeasure, window: Window) -> None:
        self.asked = asked
        self.window = window
        self.sizes = asked.summary.state.identity.sizes
        self._cells: Numbers | None = None  # by value bucket; one for all
        self._frequencies: dict[int | float | str, float] = {}
        self._counted: tuple[CellKind[object], object] | None = None

    @property
    def input(self) -> Input:
        return self.asked.input

    def read(self) -> Generator[None, None, None]:
        """Merge what the zones of the window know; a slice for each measure."""
        if self._cells is not None:
            return
        least = np.ones(1) if not self.asked.measures else None  # postings know the key exactly
        for measure in self.asked.measures:
            with self.asked.summary.reading():
                found = window_measure(self.asked.summary, measure, self.window)
                kind, state = found.kind, complete(self.asked.summary, found)
            cells = range(self.sizes.buckets if kind.grain == "cell" else 1)
            if self.asked.what == "FREQUENCY":
                self._counted, values = (kind, state), np.zeros(1)
            elif self.asked.bound is None and self.asked.what.lower() in kind.figures:
                values = kind.figure(state, self.asked.what.lower())
            else:
                values = np.array([self._value(kind, state, cell) for cell in cells])
            least = values if least is None else np.minimum(least, values)
            yield
        self._cells = least

    def _value(self, kind: CellKind[object], state: object, cell: int) -> float:
        what = self.asked.what
        if what == "CONFIDENCE":
            return kind.confidence(state, cell)
        question = {"QUANTILE": (self.asked.rank,), "DISTINCT": ()}.get(what, (what.lower(),))
        try:
            return self._bound(kind.estimate(state, cell, *question))
        except BadQuestion:  # nothing to answer about
            return math.nan

    def _bound(self, found: Estimate) -> float:
        return float({"LOWER": found.lower, "UPPER": found.upper}.get(self.asked.bound or "", found.value))

    def of(self, hashes: NDArray[np.int64], values: pa.Array | None = None) -> pa.Array:
        """The estimate of each entry, by the hash of its key, or by its value of the column for a frequency."""
        assert self._cells is not None
        if self._counted is not None:
            assert values is not None
            return self._frequency(values)
        if len(self._cells) == 1:
            return pa.array(np.full(len(hashes), self._cells[0]))
        return pa.array(self._cells[buckets_of(hashes, self.sizes)])

    def _frequency(self, values: pa.Array) -> pa.Array:
        values = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
        encoded = values.dictionary_encode()
        assert self._counted is not None
        kind, state = self._counted
        if len(self._frequencies) > REMEMBERED:
            self._frequencies.clear()
        found = []
        for value in encoded.dictionary.to_pylist():
            known = self._frequencies.get(value)
            if known is None:
                known = self._frequencies[value] = self._bound(kind.estimate(state, 0, value))
            found.append(known)
        return pa.array(found, pa.float64()).take(encoded.indices)
