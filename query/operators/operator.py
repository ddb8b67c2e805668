"""Base classes of operators."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from promising.index.regions import Guess
from promising.index.snapshot import Rows, Snapshot

__all__ = ["Batch", "Guess", "Operator", "Pace", "Sampler", "Slices"]


@dataclass(frozen=True)
class Batch:
    """Candidates for rows of the answer: one row per stream, and the draw number if sampled.

    certain: they are no sample but read for certain, and `draw` has their ranks.
    """

    rows: tuple[Rows, ...]
    draw: NDArray[np.int64] | None = None
    certain: bool = False

    def __len__(self) -> int:
        return len(self.rows[0])

    def where(self, kept: NDArray[np.bool_]) -> "Batch":
        draw = None if self.draw is None else self.draw[kept]
        return Batch(tuple(r[kept] for r in self.rows), draw, self.certain)


Slices: TypeAlias = Generator[Batch | None, None, None]
"""Work in slices: each yields a batch, or None if there is none yet."""

Pace: TypeAlias = Callable[[], int]  # the maximum number of candidates of the next slice


class Operator:
    """Reads snapshots of one or two streams. Holds no lock between slices. `done` counts processed candidates."""

    def __init__(self, snapshots: list[Snapshot], pace: Pace) -> None:
        self.snapshots = snapshots
        self.pace = pace
        self.done = 0
        self.read = 0  # tuples
        self.rank = 0  # entries of the promising set processed

    @property
    def entries(self) -> int:
        """Size of the promising set."""
        return 0

    @property
    def nbytes(self) -> int:
        """Memory held between slices."""
        return 0

    def work(self) -> Slices:
        """All candidates, each exactly once."""
        raise NotImplementedError

    def remaining(self) -> Guess | None:
        """Candidates left; None while unknown."""
        raise NotImplementedError


class Sampler(Operator):
    """An operator whose batches are a random sample of what another, the worker, processes in order."""

    @property
    def drawn(self) -> int:
        """Candidates drawn at random."""
        return self.done

    def planned(self, factor: float) -> int:
        """`done` at the next estimate, if about so many times the draws are wanted."""
        return int(self.done * factor)

    def rest(self, worker: Operator) -> tuple[NDArray[np.bool_], float]:
        """Which draws the worker has not yet reached, and how many candidates it has left."""
        raise NotImplementedError
