"""Arrays of an image that are restored directly into place."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

PLACED = re.compile(r"log\.columns\..*|summaries\[\d+\]\.postings\.(older|entries|tags)", re.DOTALL)
"""The arrays of a stream's image that `restore` takes as `Stored`: they are as long as the stream."""


class Stored(Protocol):
    def __len__(self) -> int: ...

    def into(self, places: Sequence[NDArray[Any]]) -> None:
        """Schedule reading it into these places, of the same total length; the opener of the file waits for it."""


def pour(saved: NDArray[Any] | Stored, places: Sequence[NDArray[Any]]) -> None:
    """Fill the places, of the same total length, in order."""
    if not isinstance(saved, np.ndarray):
        saved.into(places)
        return
    done = 0
    for place in places:
        place[:] = saved[done : done + len(place)]
        done += len(place)


def joined(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same rows in the same order, as the fewest ranges (first, last + 1).

    >>> joined([(4, 8), (8, 10), (0, 4)])
    [(4, 10), (0, 4)]
    """
    out: list[tuple[int, int]] = []
    for first, last in stretches:
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return out
