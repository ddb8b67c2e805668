"""What a row group of a cold file knows of its keys without being read: how many tuples, by part of the hash range.

The range is cut into `2^lg` equal parts; a part and its tuples are an entry. There are 4,096 parts, or, so that a group
has at most one entry for two tuples, fewer, but not below 256. A part without an entry has no key of the group, for
certain: that prunes. The counts rank, and nothing else. `docs/formats/cold.md` has the layout.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LG_PARTS, LEAST_LG = 12, 8
PARTS = 1 << LG_PARTS
PER_ENTRY = 2  # tuples of a group for an entry, at least: so entries cost up to a third of a byte a tuple in a file


@dataclass(frozen=True)
class KeyCounts:
    """The entries of group g are those from `starts[g]` to `starts[g + 1] - 1`."""

    starts: NDArray[np.int64]
    lg: NDArray[np.uint8]  # by group
    parts: NDArray[np.uint16]
    tuples: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.starts, self.lg, self.parts, self.tuples))

    def packed(self) -> bytes:
        sizes = np.diff(self.starts)
        steps = np.diff(self.parts.astype(np.int64), prepend=0)  # between the parts of a group
        steps[self.starts[:-1]] = self.parts[self.starts[:-1]]
        columns = (self.lg, sizes.astype("<u2"), steps.astype("<u2"), self.tuples.astype("<u4"))
        data = b"".join(_planes(column) for column in columns)
        packed: bytes = pa.compress(data, "zstd", asbytes=True)
        return len(data).to_bytes(4, "little") + packed

    @classmethod
    def unpacked(cls, packed: bytes, groups: int) -> "KeyCounts":
        data = pa.decompress(packed[4:], int.from_bytes(packed[:4], "little"), "zstd", asbytes=True)
        lg = np.frombuffer(data, np.uint8, groups)
        sizes = _joined(data, "<u2", groups, groups)
        starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        entries = int(starts[-1])
        steps = _joined(data, "<u2", entries, 3 * groups).astype(np.int64)
        ends = np.cumsum(steps)
        before = np.repeat((ends - steps)[starts[:-1]], sizes)
        tuples = _joined(data, "<u4", entries, 3 * groups + 2 * entries)
        return cls(starts, lg, (ends - before).astype(np.uint16), tuples.astype(np.float32))


def _planes(column: NDArray[Any]) -> bytes:
    """The first bytes of all values, then the second ones: most of the latter are 0."""
    return np.ascontiguousarray(column.view(np.uint8).reshape(len(column), -1).T).tobytes()


def _joined(data: bytes, kind: str, count: int, at: int) -> NDArray[Any]:
    width = np.dtype(kind).itemsize
    planes = np.frombuffer(data, np.uint8, count * width, at).reshape(width, count)
    return np.ascontiguousarray(planes.T).view(kind).reshape(count)


def part_of(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The finest part of the hash range that each key is in."""
    found: NDArray[Any] = hashes.view(np.uint64) >> np.uint64(64 - LG_PARTS)
    return found.astype(np.int64)


def count_keys(hashes: NDArray[np.int64], starts: list[int]) -> KeyCounts:
    """Of row groups that begin at these tuples. hashes: of all keys, in the order of the file."""
    parts, tuples, lgs = [], [], []
    finest = part_of(hashes)
    for first, last in zip(starts, [*starts[1:], len(hashes)], strict=True):
        found, lg = np.bincount(finest[first:last], minlength=PARTS), LG_PARTS
        most = max((last - first) // PER_ENTRY, 1 << LEAST_LG)
        while lg > LEAST_LG and np.count_nonzero(found) > most:
            found, lg = found.reshape(-1, 2).sum(axis=1), lg - 1
        parts.append(np.flatnonzero(found))
        tuples.append(found[parts[-1]])
        lgs.append(lg)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return KeyCounts(
        np.concatenate(([0], np.cumsum(sizes))),
        np.array(lgs, np.uint8),
        np.concatenate(parts).astype(np.uint16),
        np.concatenate(tuples).astype(np.float32),
    )
