"""MOMENTS(column): exact moments of every cell."""

from typing import Any

import numpy as np
import numpy.typing as npt

from promising.errors import BadQuestion
from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind, Part
from promising.summaries.moments import EVERY, Moments

QUESTIONS = ("count", "sum", "avg", "min", "max")


class MomentCells(CellKind[Moments]):
    """A group of `Moments` a cell: count, sum, sum of squares, least and greatest, without error in any order."""

    grain = "cell"
    figures = QUESTIONS
    exact = True
    subtracts = True

    def empty(self, cells: int) -> Moments:
        assert self.type is not None
        return Moments(cells, self.type)

    def add(self, state: Moments, part: Part) -> None:
        assert part.values is not None
        order = EVERY if part.order is None else part.order
        state.add_runs(np.arange(len(state), dtype=np.int32), part.starts, part.values, part.nulls, order)

    def absorb(self, state: Moments, other: Moments) -> None:
        state.merge(other, np.arange(len(state), dtype=np.int32))

    def subtract(self, state: Moments, other: Moments) -> None:
        state.subtract(other, np.arange(len(state), dtype=np.int32))

    def estimate(self, state: Moments, cell: int, *question: Any) -> Estimate:
        """One of `QUESTIONS` about the values that are not null; NaN where there is none."""
        asked = question[0] if len(question) == 1 else question
        one = state.take(np.array([cell]))
        count = float(one.count[0])
        if asked == "count":
            found = count
        elif asked in ("sum", "avg"):
            found = float(one.sums()[0])
            found = found if asked == "sum" else found / count if count else np.nan
        elif asked in ("min", "max"):
            edge = one.least if asked == "min" else one.greatest
            found = float(edge[0]) if one.count[0] > one.nan[0] else np.nan
        else:
            raise BadQuestion(f"{self.measure} answers {', '.join(QUESTIONS)}, not {asked!r}")
        return Estimate(found, found, found)

    def confidence(self, state: Moments, cell: int) -> float:
        return 1.0

    def figure(self, state: Moments, name: str) -> npt.NDArray[np.float64]:
        count = state.count.astype(np.float64)
        if name == "count":
            return count
        if name in ("sum", "avg"):
            filled = np.where(count > 0, count, np.nan)
            sums = np.where(count > 0, state.sums(), np.nan)
            return sums if name == "sum" else sums / filled
        edge = state.least if name == "min" else state.greatest
        return np.where(state.count > state.nan, edge.astype(np.float64), np.nan)

    def whole(self, state: Moments) -> Moments:
        made = self.empty(1)
        made.merge(state, np.zeros(len(state), np.int32))
        return made

    def image(self, state: Moments) -> Any:
        return {name: np.copy(part) if isinstance(part, np.ndarray) else part for name, part in state.image().items()}

    def restore(self, image: Any) -> Moments:
        return Moments.restore(image, self.type or "")

    def nbytes(self, state: Moments) -> int:
        return state.nbytes

    def ceiling(self, cells: int) -> int:
        digits = 2 * 68 if self.type == "float" else 3 + 8  # of both sums, for the widest range of exponents
        return cells * (24 + 32 + 8 * digits) + 1024
