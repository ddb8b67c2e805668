"""SAMPLE(n): a uniform sample of the rows of a zone."""

import numpy as np
import numpy.typing as npt

from promising.errors import BadMeasure, BadQuestion
from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind, Measure, Part
from promising.summaries.hashing import inner_seed
from promising.summaries.kernels.hashing import hash_longs

LARGEST = 1 << 14


class Rows:
    """For one cell: `rows` drawn from `total`, ascending in their `priorities`."""

    __slots__ = ("priorities", "rows", "total")

    def __init__(self, rows: npt.NDArray[np.int32], priorities: npt.NDArray[np.uint64], total: int) -> None:
        self.rows = rows
        self.priorities = priorities
        self.total = total


class RowSample(CellKind[list[Rows]]):
    """The `size` rows with the smallest priorities, a hash of their arrival number: all rows while there are no more.

    So samples of disjoint zones merge to the sample of their union, in any order. Whoever reads the rows answers from
    their columns; the estimate is the number of rows that were sampled from.
    """

    types = frozenset()
    arguments = "rows"
    exact = True

    def __init__(self, measure: Measure, type_: str | None, seed: int) -> None:
        size = measure.arguments[0] if len(measure.arguments) == 1 else 0
        if not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise BadMeasure(f"{measure}: 1 to {LARGEST:,} rows are wanted; for example SAMPLE(64)")
        super().__init__(Measure(measure.kind), type_, seed)
        self.measure, self.size = measure, size

    def empty(self, cells: int) -> list[Rows]:
        return [Rows(np.empty(0, np.int32), np.empty(0, np.uint64), 0) for _ in range(cells)]

    def add(self, state: list[Rows], part: Part) -> None:
        for cell, held in enumerate(state):
            own = part.cell(cell)
            assert own.rows is not None
            assert own.arrivals is not None
            priorities = np.empty(len(own.rows), np.uint64)
            hash_longs(np.ascontiguousarray(own.arrivals), inner_seed(self.seed), priorities)
            self._merge(held, own.rows, priorities, len(own.rows))

    def _merge(self, held: Rows, rows: npt.NDArray[np.int32], priorities: npt.NDArray[np.uint64], total: int) -> None:
        everything = np.concatenate((held.priorities, priorities))
        best = np.argpartition(everything, self.size)[: self.size] if len(everything) > self.size else slice(None)
        order = np.argsort(everything[best])
        held.rows = np.concatenate((held.rows, rows))[best][order]
        held.priorities = everything[best][order]
        held.total += total

    def absorb(self, state: list[Rows], other: list[Rows]) -> None:
        for mine, more in zip(state, other, strict=True):
            self._merge(mine, more.rows, more.priorities, more.total)

    def estimate(self, state: list[Rows], cell: int, *question: object) -> Estimate:
        if question:
            raise BadQuestion(f"{self.measure} answers nothing about {question[0]!r}: read its rows")
        total = float(state[cell].total)
        return Estimate(total, total, total)

    def image(self, state: list[Rows]) -> object:
        return [{"rows": held.rows, "priorities": held.priorities, "total": held.total} for held in state]

    def restore(self, image: object) -> list[Rows]:
        assert isinstance(image, list)
        return [Rows(saved["rows"].copy(), saved["priorities"].copy(), saved["total"]) for saved in image]

    def nbytes(self, state: list[Rows]) -> int:
        return sum(held.rows.nbytes + held.priorities.nbytes + 256 for held in state)

    def ceiling(self, cells: int) -> int:
        return cells * (12 * self.size + 256)
