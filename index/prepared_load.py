"""A load that was prepared elsewhere, as a stream attaches it: its tuples, and what they add to zones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from promising.index.geometry import Geometry
from promising.index.log import TupleLog
from promising.index.measures import Measures, logged
from promising.index.schema import Column
from promising.index.zone import CoarseZone, Tuples
from promising.summaries.counts import CountsKind


class Attached(NamedTuple):
    """The result of a load: tuples accepted, and refused by reason. `duplicate`: it was attached before."""

    accepted: int
    refused: dict[str, int]
    duplicate: bool = False


@dataclass(frozen=True)
class Sum:
    """What the tuples of one part add to one zone: see `CoarseZone`."""

    start: int
    length: int
    bits: NDArray[np.uint8]
    cells: NDArray[np.int64]
    first: int
    last: int
    counts: Mapping[str, Any]
    measures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> Self:
        """From its tree in a package: what is no field is of the counts."""
        known = {name for name in cls.__dataclass_fields__ if name != "counts"}
        counts = {name: part for name, part in tree.items() if name not in known}
        return cls(**{name: part for name, part in tree.items() if name in known}, counts=counts)

    def zone(
        self,
        rows: NDArray[np.int32],
        hashes: NDArray[np.int64],
        times: NDArray[np.int64],
        geometry: Geometry,
        log: TupleLog,
        kind: CountsKind[Any],
        measures: Measures,
    ) -> CoarseZone:
        """The zone to absorb; `rows` are its tuples."""
        zone = CoarseZone(
            self.start // self.length,
            self.start,
            kind,
            kind.one(self.counts),
            self.bits,
            self.cells,
            Tuples(rows),
            measures.completed(self.measures, logged(log, rows, hashes)),
            self.length // geometry.parts,
            np.zeros(geometry.parts, np.int64),
            self.first,
            self.last,
        )
        zone.date(times)
        zone.take("late", 0, len(rows))
        return zone


@dataclass(frozen=True)
class LoadPart:
    """Some of the tuples, in order of arrival: stored as `run`, or in `columns`.

    hashes: of every key column in the load plan. nulls: columns with nulls. sums: by summary, of the zones before the
    planned horizon of `G_1`.
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
    """A whole load: `digest` identifies the content, zones are for `watermark`; `summaries` are those with sums."""

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
