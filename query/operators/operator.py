"""What all operators share."""

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
    """Candidates for rows of the answer: one row of each stream, and the number of the draw where they were drawn."""

    rows: tuple[Rows, ...]
    draw: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.rows[0])

    def where(self, kept: NDArray[np.bool_]) -> "Batch":
        return Batch(tuple(r[kept] for r in self.rows), None if self.draw is None else self.draw[kept])


Slices: TypeAlias = Generator[Batch | None, None, None]
"""Work in slices: after each it hands on a batch, or None when there is none to hand on yet."""

Pace: TypeAlias = Callable[[], int]
"""How many candidates the next slice may have."""


class Operator:
    """Reads snapshots of one or two streams.

    Between two slices no lock is held. `done` counts candidates worked so far; `remaining` says how many are left.
    """

    def __init__(self, snapshots: list[Snapshot], pace: Pace) -> None:
        self.snapshots = snapshots
        self.pace = pace
        self.done = 0
        self.read = 0  # tuples
        self.rank = 0  # entries of the promising set that have been worked

    @property
    def entries(self) -> int:
        """Of the promising set."""
        return 0

    @property
    def nbytes(self) -> int:
        """What it holds on to between slices."""
        return 0

    def work(self) -> Slices:
        """All candidates, each once."""
        raise NotImplementedError

    def remaining(self) -> Guess | None:
        """Candidates that are left; None as long as nothing is known."""
        raise NotImplementedError


class Sampler(Operator):
    """An operator whose batches are a random sample of what another, the worker, goes through in order."""

    def rest(self, worker: Operator) -> tuple[NDArray[np.bool_], float]:
        """Which draws so far are of candidates that the worker has not come to, and how many candidates those are."""
        raise NotImplementedError
