"""The seam of counts: how the cells of a summary count its key.

A kind of counts is a `CellKind` whose states have zones of so many value buckets. What a zone's counts are is known to
its kind alone; a new kind is a file and a line in `COUNTS`. Keys are given by their hashes.
"""

import importlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from promising.errors import BadCounts
from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind, Longs, Measure, Part, State, keys
from promising.summaries.hashing import hash_checked
from promising.summaries.keys import as_keys

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bounds = tuple[Floats, Floats, Floats]  # value, lower, upper
Zones = int | Sequence[int]
Room = Literal["sealed", "zone", "window"]
"""What a state is for: sealed zones of up to 32,767 tuples, more of them later; a zone that grows; a whole window."""

USUAL = "count_sketch"
COUNTS: dict[str, str] = {
    "count_sketch": "promising.summaries.sketch_counts:SketchCounts",
    "count_min": "promising.summaries.min_counts:MinCounts",
    "exact": "promising.summaries.exact_counts:ExactCounts",
}
"""The kinds that USING knows: where each class is, imported on first use."""

ANY = np.array([np.iinfo(np.int64).max])


class WindowCounts(NamedTuple):
    """Counts of the tuples surely in a window, and of the zones across its edges, about `share` inside."""

    kind: "CountsKind[Any]"
    inside: Any
    across: Any
    share: float


class CountsKind(CellKind[State]):
    """Counts of keys by zone and bucket.

    exact: a state depends on its tuples only, to the bit. tuple_bytes: what a tuple adds at most, beside `zone_bytes`.
    """

    name: ClassVar[str]
    grain = "cell"
    types = frozenset({"int", "string"})
    exact = True
    subtracts = True

    def __init__(self, buckets: int, depth: int, width: int, seed: int = 0) -> None:
        """seed: of the hash, for the methods that take keys and not their hashes."""
        super().__init__(Measure(self.name), None, seed)
        self.buckets, self.depth, self.width = buckets, depth, width
        self.shift = 64 - (buckets.bit_length() - 1)

    def same(self, other: "CountsKind[Any]") -> bool:
        """Whether states of both can be compared."""
        shapes = [(type(kind), kind.buckets, kind.depth, kind.width) for kind in (self, other)]
        return shapes[0] == shapes[1]

    # --- zones ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, zones: int, room: Room = "zone") -> State:
        """A state of so many empty zones."""

    @abstractmethod
    def grow(self, state: State, zones: int) -> None:
        """Have so many zones; only with room for "sealed" ones."""

    @abstractmethod
    def clear(self, state: State, zone: int) -> None:
        """Empty a zone."""

    def release(self, state: State, zone: int) -> None:
        """A zone is out of use until it is cleared."""

    @abstractmethod
    def insert(self, state: State, zone: int, keys: Longs, sizes: Ints, cells: Longs) -> None:
        """Add `sizes[i]` tuples of each distinct key, and count them by bucket in `cells`; not in room for a window."""

    @abstractmethod
    def merge(self, state: State, zone: int, other: State, at: int) -> None:
        """Add a zone of another state."""

    @abstractmethod
    def take(self, state: State, zone: int, other: State, at: int) -> None:
        """Undo `merge`."""

    @abstractmethod
    def estimates(self, state: State, hashes: Longs, key: Longs, zone: Longs, bucket: Longs, tuples: Longs) -> Bounds:
        """Tuples of hashes[key[i]] in a zone and its bucket, which has so many tuples: 0 <= lower <= value <= upper."""

    def join(self, one: WindowCounts, other: WindowCounts) -> Estimate | None:
        """Pairs of tuples with equal keys, of the `same` kind; None where it is not offered."""
        return None

    def pairs(self, one: WindowCounts, other: WindowCounts) -> Floats | None:
        """Estimated pairs by bucket, to rank buckets, of the `same` kind; None where that is not offered."""
        return None

    def tolerated(self, tolerance: float) -> float:
        """F2 of a zone beyond which the standard error of its estimates exceeds so many tuples."""
        return np.inf

    def error(self, state: State, zone: int) -> float | None:
        """The standard error of the estimates of a zone, in tuples, if that is known."""
        return None

    @abstractmethod
    def faults(self, state: State, zone: int, rebuilt: State, at: int) -> Iterator[str]:
        """How a zone contradicts the one rebuilt from its tuples, or itself."""

    # --- storage -------------------------------------------------------------------------------------------------

    @abstractmethod
    def saved(self, state: State, zones: Zones) -> dict[str, Any]:
        """One zone or several as a tree of arrays, independent of the state. It is merged into that of the zone."""

    @abstractmethod
    def load(self, state: State, zones: Zones, saved: Mapping[str, Any]) -> None:
        """The inverse of `saved`, into empty zones."""

    def one(self, saved: Mapping[str, Any]) -> State:
        """A state with one zone, from its tree."""
        state = self.allocate(1)
        self.load(state, 0, saved)
        return state

    @abstractmethod
    def nbytes(self, state: State, zones: int | None = None) -> int:
        """Bytes in memory; zones: how many of them are in use."""

    @abstractmethod
    def zone_bytes(self, room: Room) -> int:
        """Maximum bytes of a zone, without `tuple_bytes`."""

    # --- as a kind of cells: every zone is one ---------------------------------------------------------------------

    def empty(self, cells: int) -> State:
        return self.allocate(cells)

    def add(self, state: State, part: Part) -> None:
        for zone in range(len(part.starts) - 1):
            hashes = hash_checked(keys(part.cell(zone).valid()), self.seed).view(np.int64)
            found, sizes = np.unique(hashes, return_counts=True)
            self.insert(state, zone, found, sizes.astype(np.int32), np.zeros(self.buckets, np.int64))

    @abstractmethod
    def count(self, state: State) -> int:
        """Its number of zones."""

    def absorb(self, state: State, other: State) -> None:
        for zone in range(self.count(state)):
            self.merge(state, zone, other, zone)

    def subtract(self, state: State, other: State) -> None:
        for zone in range(self.count(state)):
            self.take(state, zone, other, zone)

    def estimate(self, state: State, cell: int, *question: Any) -> Estimate:
        """Of one key."""
        hashes = hash_checked(as_keys([question[0]]), self.seed).view(np.int64)
        at, place = np.zeros(1, np.int64), np.array([cell])
        found = self.estimates(state, hashes, at, place, self.bucket_of(hashes), ANY)
        return Estimate(*(float(part[0]) for part in found))

    def bucket_of(self, hashes: Longs) -> Longs:
        """The bucket of each key."""
        if self.buckets == 1:
            return np.zeros(len(hashes), np.int64)
        return (hashes.view(np.uint64) >> np.uint64(self.shift)).astype(np.int64)

    def image(self, state: State) -> Any:
        return self.saved(state, range(self.count(state)))

    def ceiling(self, cells: int) -> int:
        return cells * self.zone_bytes("zone")


def counts_kind(name: str) -> type[CountsKind[Any]]:
    """The class of a kind, in any case of letters; `BadCounts` lists those there are."""
    if not isinstance(name, str) or name.lower() not in COUNTS:
        known = ", ".join(known.upper() for known in COUNTS)
        raise BadCounts(
            f"unknown kind of counts {name.upper() if isinstance(name, str) else name!r}; there are {known}"
        )
    module, _, cls = COUNTS[name.lower()].partition(":")
    found: type[CountsKind[Any]] = getattr(importlib.import_module(module), cls)
    return found
