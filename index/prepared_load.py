"""Tuples that were prepared elsewhere, as a stream takes them in: where they are, and what their zones add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.index.schema import Column
from promising.index.zone import CoarseZone, Tuples


class Attached(NamedTuple):
    """What became of a load: tuples taken in, and left out by reason. `duplicate`: it had been taken in before."""

    accepted: int
    refused: dict[str, int]
    duplicate: bool = False


@dataclass(frozen=True)
class Sum:
    """What the tuples of one part add to one zone: see `CoarseZone`."""

    start: int
    length: int
    counters: NDArray[np.int32]
    bits: NDArray[np.uint8]
    cells: NDArray[np.int64]
    first: int
    last: int

    def zone(self, rows: NDArray[np.int32]) -> CoarseZone:
        """As a zone that another one can absorb; `rows` are its tuples."""
        zone = CoarseZone(
            self.start // self.length,
            self.start,
            self.counters,
            self.bits,
            self.cells,
            Tuples(rows),
            self.first,
            self.last,
        )
        zone.take("late", 0, len(rows))
        return zone


@dataclass(frozen=True)
class LoadPart:
    """Some of the tuples, in the order in which they arrive.

    They can be read as `run`, or are in `columns`. hashes: of every key column that a load was planned for. nulls:
    columns with values missing. sums: by summary, of the zones before the horizon of `G_1` that the load was planned
    for.
    """

    times: NDArray[np.int64]
    hashes: Mapping[str, NDArray[np.int64]]
    nulls: Sequence[str]
    sums: Mapping[str, list[Sum]]
    run: int | None = None
    columns: dict[str, Column] | None = None

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Load:
    """All of it. `digest` tells one content from another; `watermark` is what its zones were worked out for.

    summaries: the definitions that there are sums of, by name. latest: the latest event time.
    """

    token: str
    digest: int
    watermark: int
    latest: int
    summaries: dict[str, dict[str, Any]]
    refused: dict[str, int]
    parts: list[LoadPart]

    @property
    def tuples(self) -> int:
        return sum(map(len, self.parts))
