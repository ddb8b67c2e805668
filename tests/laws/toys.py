"""Kinds of one's own, as a file each would have them: the longest string, and counts of cells that know no keys."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind, Longs, Part
from promising.summaries.counts import Bounds, CountsKind, Ints, Room, Zones


class Longest(CellKind[list[int]]):
    """The bytes of the longest string."""

    types = frozenset({"string"})
    exact = True
    figures = ("bytes",)

    def empty(self, cells: int) -> list[int]:
        return [0] * cells

    def add(self, state: list[int], part: Part) -> None:
        for cell in range(len(state)):
            lengths = [len(text.encode()) for text in part.cell(cell).valid().text.to_pylist()]
            state[cell] = max([state[cell], *lengths])

    def absorb(self, state: list[int], other: list[int]) -> None:
        state[:] = map(max, state, other)

    def estimate(self, state: list[int], cell: int, *question: Any) -> Estimate:
        return Estimate(*[float(state[cell])] * 3)

    def figure(self, state: list[int], name: str) -> Any:
        return np.array(state, np.float64)

    def image(self, state: list[int]) -> Any:
        return list(state)

    def restore(self, image: Any) -> list[int]:
        return list(image)

    def nbytes(self, state: list[int]) -> int:
        return 8 * len(state)

    def ceiling(self, cells: int) -> int:
        return 8 * cells


class Totals(CountsKind[list[Longs]]):
    """The tuples of each cell, and nothing of its keys."""

    name = "totals"

    def allocate(self, zones: int, room: Room = "zone") -> list[Longs]:
        return [np.zeros(self.buckets, np.int64) for _ in range(zones)]

    def grow(self, state: list[Longs], zones: int) -> None:
        state += self.allocate(zones - len(state))

    def clear(self, state: list[Longs], zone: int) -> None:
        state[zone][:] = 0

    def insert(self, state: list[Longs], zone: int, keys: Longs, sizes: Ints, cells: Longs) -> None:
        more = np.bincount(self.bucket_of(keys), sizes, self.buckets).astype(np.int64)
        state[zone] += more
        cells += more

    def merge(self, state: list[Longs], zone: int, other: list[Longs], at: int) -> None:
        state[zone] += other[at]

    def take(self, state: list[Longs], zone: int, other: list[Longs], at: int) -> None:
        state[zone] -= other[at]

    def estimates(
        self, state: list[Longs], hashes: Longs, key: Longs, zone: Longs, bucket: Longs, tuples: Longs
    ) -> Bounds:
        most = np.array([state[z][b] for z, b in zip(zone.tolist(), bucket.tolist(), strict=True)], np.float64)
        return most / 2, np.zeros(len(key)), most

    def faults(self, state: list[Longs], zone: int, rebuilt: list[Longs], at: int) -> Iterator[str]:
        if (state[zone] != rebuilt[at]).any():
            yield "its totals are not those of its tuples"

    def count(self, state: list[Longs]) -> int:
        return len(state)

    def saved(self, state: list[Longs], zones: Zones) -> dict[str, Any]:
        return {"totals": [state[zone].copy() for zone in ([zones] if isinstance(zones, int) else zones)]}

    def load(self, state: list[Longs], zones: Zones, saved: Mapping[str, Any]) -> None:
        for at, zone in enumerate([zones] if isinstance(zones, int) else zones):
            state[zone][:] = saved["totals"][at]

    def restore(self, image: Any) -> list[Longs]:
        state = self.allocate(len(image["totals"]))
        self.load(state, range(len(state)), image)
        return state

    def nbytes(self, state: list[Longs], zones: int | None = None) -> int:
        return self.zone_bytes("zone") * (len(state) if zones is None else zones)

    def zone_bytes(self, room: Room) -> int:
        return 8 * self.buckets
