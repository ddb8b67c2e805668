"""The common base of counts in counters: rows of counters of every zone and bucket, linear in the tuples."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from promising.summaries.cells import Longs
from promising.summaries.counts import CountsKind, Floats, Ints, Room, WindowCounts, Zones
from promising.summaries.kernels.counts import pour
from promising.summaries.reserved import Reserved, longer

ROOMS: dict[Room, type[np.signedinteger[Any]]] = {"sealed": np.int16, "zone": np.int32, "window": np.int64}


class CounterZones:
    """Counters by zone, laid out [bucket][row][column], and what the bounds of each bucket need.

    `derived` is computed on first use, and then `known`.
    """

    def __init__(self, zones: int, counters: int, buckets: int, room: Room) -> None:
        self._rooms: list[Reserved[Any]] = []
        self._buckets = buckets
        self.known = np.zeros(zones, np.bool_)
        self._derived: Floats | None = None
        if room == "sealed":
            self._rooms = [Reserved(ROOMS[room], zones, (counters,)), Reserved(np.float64, zones, (buckets,))]
            self._show()
        else:
            self.counters: npt.NDArray[Any] = np.zeros((zones, counters), ROOMS[room])

    def _show(self) -> None:
        self.counters, self._derived = (room.array for room in self._rooms)

    @property
    def derived(self) -> Floats:
        if self._derived is None:
            self._derived = np.zeros((len(self.known), self._buckets))
        return self._derived

    def grow(self, zones: int) -> None:
        used = [(0, len(self.known))]
        del self.counters
        self._derived = None  # no views, so that the memory is moved and not copied
        try:
            for room in self._rooms:
                room.grow(zones, used)
        finally:
            self._show()
        self.known = longer(self.known, zones)

    @property
    def zone_bytes(self) -> int:
        """Of one zone."""
        derived = 0 if self._derived is None else self._derived[0].nbytes
        return int(self.counters[0].nbytes) + int(derived)


class CounterCounts(CountsKind[CounterZones]):
    update: ClassVar[Callable[..., None]]  # the kernel that adds keys
    what: ClassVar[str]  # the counters' derived values, in messages

    @property
    def counters(self) -> int:
        """Of a zone."""
        return self.buckets * self.depth * self.width

    @property
    def lg(self) -> int:
        return self.width.bit_length() - 1

    @abstractmethod
    def derive(self, counters: npt.NDArray[Any]) -> Floats:
        """What the bounds of each bucket of a zone need."""

    def derived(self, state: CounterZones, zone: int) -> Floats:
        """The same, remembered."""
        if not state.known[zone]:
            state.derived[zone] = self.derive(state.counters[zone])
            state.known[zone] = True
        row: Floats = state.derived[zone]
        return row

    def derived_of(self, state: CounterZones, zone: Longs, bucket: Longs) -> Floats:
        for one in np.unique(zone[~state.known[zone]]).tolist():
            self.derived(state, one)
        found: Floats = state.derived[zone, bucket]
        return found

    def allocate(self, zones: int, room: Room = "zone") -> CounterZones:
        return CounterZones(zones, self.counters, self.buckets, room)

    def grow(self, state: CounterZones, zones: int) -> None:
        state.grow(zones)

    def clear(self, state: CounterZones, zone: int) -> None:
        state.counters[zone] = 0
        state.known[zone] = False

    def insert(self, state: CounterZones, zone: int, keys: Longs, sizes: Ints, cells: Longs) -> None:
        type(self).update(keys, sizes, self.shift, self.depth, self.lg, state.counters[zone], cells)
        state.known[zone] = False

    def merge(self, state: CounterZones, zone: int, other: CounterZones, at: int) -> None:
        if state.counters.dtype == np.int32 and other.counters.dtype == np.int16:
            pour(other.counters[at], state.counters[zone])
        else:
            state.counters[zone] += other.counters[at]
        state.known[zone] = False

    def take(self, state: CounterZones, zone: int, other: CounterZones, at: int) -> None:
        state.counters[zone] -= other.counters[at]
        state.known[zone] = False

    def faults(self, state: CounterZones, zone: int, rebuilt: CounterZones, at: int) -> Iterator[str]:
        wrong = int((state.counters[zone] != rebuilt.counters[at]).sum())
        if wrong:
            yield f"{wrong:,} of {self.counters:,} counters are not those of its tuples"
        if state.known[zone] and (state.derived[zone] != self.derive(state.counters[zone])).any():
            yield f"the {self.what} of its cells is not that of its counters"

    def count(self, state: CounterZones) -> int:
        return len(state.known)

    def saved(self, state: CounterZones, zones: Zones) -> dict[str, Any]:
        return {"counters": state.counters[zones if isinstance(zones, int) else list(zones)].copy()}

    def load(self, state: CounterZones, zones: Zones, saved: Mapping[str, Any]) -> None:
        state.counters[zones if isinstance(zones, int) else list(zones)] = saved["counters"]

    def restore(self, image: Any) -> CounterZones:
        state = self.allocate(len(image["counters"]))
        self.load(state, range(self.count(state)), image)
        return state

    def nbytes(self, state: CounterZones, zones: int | None = None) -> int:
        return (self.count(state) if zones is None else zones) * state.zone_bytes

    def zone_bytes(self, room: Room) -> int:
        return self.counters * np.dtype(ROOMS[room]).itemsize + self.buckets * 8

    def likely(self, window: WindowCounts) -> Floats:
        """The estimated counters of a window, [bucket][row][column]."""
        return self.rows(window.inside.counters[0]) + window.share * self.rows(window.across.counters[0])

    def rows(self, counters: npt.NDArray[Any]) -> Floats:
        """Counters of one zone as [bucket][row][column]."""
        found: Floats = counters.astype(np.float64).reshape(self.buckets, self.depth, self.width)
        return found
