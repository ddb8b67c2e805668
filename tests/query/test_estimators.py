"""Estimates from samples: how often the intervals hold, and what they must say where little or all is known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from query.aggregates import Aggregate, Groups
from query.estimators import Estimated, Sample, estimate
from query.types import ARROW
from summaries.errors import BadQuestion, Overflow

TRIALS = 1000

CALLS = [
    Aggregate("count"),
    Aggregate("count", "float"),
    Aggregate("sum", "float"),
    Aggregate("avg", "float"),
    Aggregate("median", "float"),
    Aggregate("quantile", "float", 0.9),
    Aggregate("sum", "int"),
    Aggregate("avg", "int"),
]

LAWS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "uniform": lambda rng, size: rng.random(size),
    "normal": lambda rng, size: rng.normal(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal": lambda rng, size: rng.lognormal(0, 1, size),
}


@dataclass
class World:
    """A population of units, some of which are rows of the answer, in groups; the first `worked` are worked exactly."""

    law: str
    size: int
    draws: int
    passing: float = 1.0
    worked: int = 0
    sizes: NDArray[np.float64] | None = None  # the groups' shares
    seed: int = 0
    nulls: float = 0.05
    columns: list[pa.Array] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.values = LAWS[self.law](self.rng, self.size)
        self.passes = self.rng.random(self.size) < self.passing
        self.missing = self.rng.random(self.size) < self.nulls
        self.groups = np.zeros(self.size, np.int64)
        if self.sizes is not None:
            self.groups = self.rng.choice(len(self.sizes), self.size, p=self.sizes / self.sizes.sum())
        self.floats = pa.array(self.values, mask=self.missing)
        self.ints = pa.array((self.values * 1000).astype(np.int64), mask=self.missing)
        self.keys = pa.array(self.groups)

    def rows(self, units: NDArray[np.int64], calls: list[Aggregate]) -> Sample:
        """Those of these units that are rows of the answer."""
        units = units[self.passes[units]]
        floats, ints = self.floats.take(pa.array(units)), self.ints.take(pa.array(units))
        arguments = [{None: None, "float": floats, "int": ints}[call.kind] for call in calls]  # type: ignore[index]
        return Sample([] if self.sizes is None else [self.keys.take(pa.array(units))], arguments, len(units))

    def exactly(self, units: NDArray[np.int64], calls: list[Aggregate]) -> Groups:
        groups = Groups([] if self.sizes is None else ["int"], calls)
        rows = self.rows(units, calls)
        groups.add(rows.keys, rows.arguments, rows.rows)
        return groups

    def trials(self, calls: list[Aggregate], count: int = TRIALS) -> NDArray[np.int64]:
        """For each aggregate and group: in how many trials the truth was below, within, above, or the group not seen."""
        result = self.exactly(np.arange(self.size), calls).result()
        truth = [np.asarray(array, np.float64) for array in result.values]
        known = {key: i for i, key in enumerate(result.keys[0].to_pylist())} if result.keys else {}
        part = self.exactly(np.arange(self.worked), calls)
        seen = np.zeros((len(calls), len(truth[0]), 4), np.int64)
        left = self.size - self.worked
        for _ in range(count):
            drawn = self.worked + self.rng.choice(left, self.draws, replace=False, shuffle=False)
            answer = estimate(part, self.rows(drawn, calls), self.draws, left)
            place = np.array([known[key] for key in answer.keys[0].to_pylist()]) if answer.keys else np.zeros(1, np.intp)
            seen[:, :, 3] += 1
            for k in range(len(calls)):
                lower = np.asarray(answer.lower[k].fill_null(-(2**53)), np.float64)
                upper = np.asarray(answer.upper[k].fill_null(2**53), np.float64)
                where = 1 + (truth[k][place] > upper) - (truth[k][place] < lower)
                seen[k, place, where] += 1
                seen[k, place, 3] -= 1
        return seen
