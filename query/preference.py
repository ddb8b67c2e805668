"""Preferences: the priority of entries, and the order in which they are processed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.summary_index import SummaryIndex
from promising.query.fade import Bands, Fade
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.summaries.cells import Measure

Direction = Literal["DESC", "ASC", "WEIGHTED"]

ESTIMATE = -2  # source of inputs that are `SUMMARY.Estimate.*`


@dataclass(frozen=True)
class EstimatedCount:
    """One `SUMMARY.Estimate.What(attribute)` of the preference, and its input."""

    side: int
    attribute: str
    what: Literal["COUNT", "LOWER", "UPPER"]

    @property
    def input(self) -> Input:
        return Input(ESTIMATE, f"{self.side}.{self.what}.{self.attribute}", "float")


@dataclass(frozen=True)
class EstimatedMeasure:
    """An estimate of the preference that measures of a summary give, about the cell of an entry, and its input.

    what: SUM, AVG, MIN, MAX, QUANTILE at `rank`, DISTINCT, FREQUENCY (of the entry's value) or CONFIDENCE.
    measures: of `summary`; a confidence is the least of several, and 1 of none, that of the key's count.
    """

    side: int
    column: str
    what: str
    bound: Literal["LOWER", "UPPER"] | None
    rank: float | None
    summary: SummaryIndex = field(compare=False)
    measures: tuple[Measure, ...]

    @property
    def input(self) -> Input:
        return Input(ESTIMATE, f"{self.side}.{self.what}.{self.bound}.{self.rank}.{self.column}", "float")


@dataclass(frozen=True)
class BoundPreference:
    """The product of `factors`, each over estimates and columns.

    side: None if entries are keys; else entries are tuples of that side, because a factor reads its columns.
    rising: all factors are of counts, and none falls when a count rises: a key's highest count bounds its priority.
    counts_only: a product of distinct `SUMMARY.Estimate.Count`s and nothing else.
    """

    direction: Direction
    factors: tuple[Compiled, ...]
    estimates: tuple[EstimatedCount, ...]
    fade: Fade | None
    side: int | None
    rising: bool
    counts_only: bool
    measured: tuple[EstimatedMeasure, ...] = ()
    attribute: str | None = None
    """The key of the entries of a query over one stream."""

    def value(self, columns: Mapping[Input, pa.Array], rows: int) -> NDArray[np.float64]:
        """The product for each row; NaN, which sorts last, where it is not a number."""
        out = np.ones(rows, np.float64)
        with np.errstate(all="ignore"):
            for factor in self.factors:
                column = factor.evaluate(columns, rows).cast(pa.float64(), safe=False)
                out *= column.to_numpy(zero_copy_only=False)  # a null becomes NaN
        return out

    def priority(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Higher is better, in either direction."""
        value = -value if self.direction == "ASC" else value
        out: NDArray[np.float64] = np.where(np.isnan(value), -np.inf, value) + 0.0
        return out

    def faded(self, value: NDArray[np.float64], bands: Sequence[Bands]) -> NDArray[np.float64]:
        """The value of an entry confined to a band per side: times (ASC: divided by) the factor of its fade."""
        if self.fade is None:
            return value
        factor = self.fade.factor(bands)
        return value / factor if self.direction == "ASC" else value * factor


def exact_counts(
    estimates: Sequence[EstimatedCount], counts: Mapping[tuple[int, str | None], NDArray[np.int64]]
) -> dict[Input, pa.Array]:
    """Input columns for estimates whose counts are exact: value and bounds coincide."""
    return {e.input: pa.array(counts[e.side, e.attribute].astype(np.float64)) for e in estimates}
