"""A preference: what makes an entry promising, and in which order entries are taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input

Direction = Literal["DESC", "ASC", "WEIGHTED"]

ESTIMATE = -2
"""The source of inputs that stand for `SUMMARY.Estimate.*`."""


@dataclass(frozen=True)
class EstimatedCount:
    """One `SUMMARY.Estimate.What(attribute)` of the preference, and the input it is computed as."""

    side: int
    attribute: str
    what: Literal["COUNT", "LOWER", "UPPER"]

    @property
    def input(self) -> Input:
        return Input(ESTIMATE, f"{self.side}.{self.what}.{self.attribute}", "float")


@dataclass(frozen=True)
class BoundPreference:
    """The product of `factors`, each over estimates and columns.

    `side` is None if every entry is a key; else entries are tuples of that side, because a factor looks at its columns.
    `rising` says that no factor falls when a count rises, so that a key's highest count bounds its priority.
    `counts_only` is a product of different `SUMMARY.Estimate.Count`s and nothing else.
    """

    direction: Direction
    factors: tuple[Compiled, ...]
    estimates: tuple[EstimatedCount, ...]
    fade: float
    side: int | None
    rising: bool
    counts_only: bool

    def value(self, columns: Mapping[Input, pa.Array], rows: int) -> NDArray[np.float64]:
        """The product for each row; what is no number comes last."""
        out = np.ones(rows, np.float64)
        with np.errstate(all="ignore"):
            for factor in self.factors:
                column = factor.evaluate(columns, rows).cast(pa.float64(), safe=False)
                out *= column.to_numpy(zero_copy_only=False)  # a null becomes NaN
        return out

    def priority(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Higher is better, whatever the direction."""
        value = -value if self.direction == "ASC" else value
        out: NDArray[np.float64] = np.where(np.isnan(value), -np.inf, value) + 0.0
        return out

    def faded(self, value: NDArray[np.float64], bands: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """The value of an entry confined to a granularity on each side: `fade` for each step back on either.

        Rarest first, a step back makes an entry count as less rare.
        """
        steps = sum(bands) - len(bands)
        factor = np.power(self.fade, steps, dtype=np.float64)
        return value / factor if self.direction == "ASC" else value * factor


def exact_counts(
    estimates: Sequence[EstimatedCount], counts: Mapping[tuple[int, str | None], NDArray[np.int64]]
) -> dict[Input, pa.Array]:
    """Columns for estimates whose counts are known: value and bounds are one number."""
    return {e.input: pa.array(counts[e.side, e.attribute].astype(np.float64)) for e in estimates}
