"""How much wider the bounds of a sum are if the sample may have missed extreme rows.

The extreme rows that were not read are listed with a score. Their squares are predicted from the last half of those
that were read, by the score, and replace what the sample shows of them if that is less. Bounds are computed repeatedly
while the sample grows, and the first that is narrow enough ends it. So it is narrow by chance more often than one alone
would be, and the variance is multiplied by `LOOKS`.
"""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.aggregate.aggregates import Aggregate

LOOKS = 1.2
FEW = 64  # rows that a prediction is made from, at least

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


class Certain:
    """The values of sums and averages of rows read for certain; those that are no row of the answer are 0."""

    def __init__(self, aggregates: Sequence[Aggregate], squares: Floats, beyond: Floats) -> None:
        """squares: of the scores, by rank. beyond: of those from each rank on, and of rows without rank, added up."""
        self.squares, self.beyond = squares, beyond
        self.of = {at: a.function == "avg" for at, a in enumerate(aggregates) if a.function in ("sum", "avg")}
        self._values = {at: np.full(len(squares), np.nan) for at in self.of}

    @property
    def nbytes(self) -> int:
        return 8 * len(self.squares) * (2 + len(self.of))

    def add(self, arguments: Sequence[pa.Array | None], ranks: Longs) -> None:
        for at, values in self._values.items():
            values[ranks] = _numbers(arguments[at])

    def widened(
        self, read: int, arguments: Sequence[pa.Array | None], ranks: Longs, draws: int, population: float
    ) -> tuple[dict[int, float], list[tuple[float, float]]]:
        """By aggregate, the factor of its margins; and by sum the squares per square of the score, and by draw.

        read: ranks below were read for certain. arguments, ranks: of the rows among the draws.
        """
        factors, gains = {}, []
        weight = population / draws if draws else 0.0
        last = slice(read - max(read // 2, FEW) if read > FEW else 0, read)
        with np.errstate(all="ignore"):
            for at, mean in self.of.items():
                known, drawn = self._values[at][:read], _numbers(arguments[at])
                hits = np.count_nonzero(~np.isnan(known)) + weight * np.count_nonzero(~np.isnan(drawn))
                shift = (np.nansum(known) + weight * np.nansum(drawn)) / hits if mean and hits else 0.0
                tail, rest = np.nan_to_num((known[last] - shift) ** 2), np.nan_to_num((drawn - shift) ** 2)
                scores = float(self.squares[last].sum())
                ratio = float(tail.sum()) / scores if scores else 0.0
                square = float(rest.sum())
                listed = float(rest[ranks < len(self.squares)].sum())
                missed = max(ratio * float(self.beyond[read]) - weight * listed, 0.0)
                more = missed / (weight * square) if square and weight else 0.0
                factors[at] = math.sqrt(LOOKS * (1.0 + more)) if math.isfinite(more) else 1.0
                if math.isfinite(ratio) and math.isfinite(square):
                    gains.append((ratio, square / max(draws, 1)))
        return factors, gains


def _numbers(argument: pa.Array | None) -> Floats:
    """NaN for NULL."""
    assert argument is not None
    found: Floats = argument.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
