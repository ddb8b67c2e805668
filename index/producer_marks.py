"""Marks of producers whose results are forgotten: what still says which of their batches may have been added."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

GATHERED = 1 << 12  # new marks that are merged into the sorted arrays at once

KIND = np.dtype([("name", "<i8"), ("epoch", "<i8"), ("number", "<i8")])


class Mark(NamedTuple):
    """A producer's epoch, and the greatest number that it may have used."""

    epoch: int
    number: int


class Marks:
    """Marks by producer, 24 bytes each: at most `most`, then the older half is dropped.

    Names are held as hashes of 63 bits: another name may get a producer's mark, with a probability of 2^-43 at 2^20
    marks. Its batch is then refused if its number is not above the mark.

    >>> marks = Marks(1 << 20)
    >>> marks.put("till 7", Mark(0, 41))
    >>> marks.find("till 7"), marks.find("till 8"), marks.dropped
    (Mark(epoch=0, number=41), None, 0)
    """

    def __init__(self, most: int) -> None:
        self.dropped = 0
        """An epoch above that of every dropped mark; 0 if none was dropped."""
        self._half = most // 2
        self._gathered: dict[int, Mark] = {}
        self._newer = self._older = np.empty(0, KIND)

    def __len__(self) -> int:
        """Their number; a producer that was marked again counts twice until it is merged."""
        return len(self._gathered) + len(self._newer) + len(self._older)

    def find(self, name: str) -> Mark | None:
        if not len(self):
            return None
        key = _hash(name)
        found = self._gathered.get(key)
        return found or _in(self._newer, key) or _in(self._older, key)

    def put(self, name: str, mark: Mark) -> None:
        self._gathered[_hash(name)] = mark
        if len(self._gathered) >= min(GATHERED, self._half):
            self._merge()

    def _merge(self) -> None:
        added = np.array([(key, *mark) for key, mark in self._gathered.items()], KIND)
        marks = np.concatenate((added, self._newer))
        _, first = np.unique(marks["name"], return_index=True)  # the newest of a name
        self._newer = marks[first]
        self._gathered.clear()
        if len(self._newer) >= self._half:
            if len(self._older):
                self.dropped = max(self.dropped, int(self._older["epoch"].max()) + 1)
            self._older, self._newer = self._newer, np.empty(0, KIND)

    def image(self) -> dict[str, Any]:
        self._merge()
        marks = np.concatenate((self._newer, self._older))
        return {"newer": len(self._newer), "dropped": self.dropped, **{n: marks[n].copy() for n in KIND.names or ()}}

    def restore(self, image: dict[str, Any]) -> None:
        marks = np.empty(len(image["name"]), KIND)
        for part in KIND.names or ():
            marks[part] = image[part]
        self.dropped, newer = image["dropped"], image["newer"]
        self._newer, self._older = marks[:newer], marks[newer:]


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def _in(marks: NDArray[Any], key: int) -> Mark | None:
    at = int(np.searchsorted(marks["name"], key))
    if at == len(marks) or marks["name"][at] != key:
        return None
    return Mark(int(marks["epoch"][at]), int(marks["number"][at]))
