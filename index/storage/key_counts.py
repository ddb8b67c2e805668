"""What a row group of a cold file knows of its keys without being read: how many tuples, by part of the hash range.

The hashes are divided into `2^lg` equal parts, 4,096 or, where more than 256 of them have tuples, fewer; a part and its
tuples are an entry. A part without an entry has no key of the group, for certain: that prunes. The counts rank, and
nothing else. `docs/formats/cold.md` has the layout.
"""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LG_PARTS, LEAST_LG = 12, 8
PARTS = 1 << LG_PARTS
MOST_ENTRIES = 1 << LEAST_LG  # of a row group: the fewest parts always fit


@dataclass(frozen=True)
class KeyCounts:
    """The entries of group g are those from `starts[g]` to `starts[g + 1] - 1`."""

    starts: NDArray[np.int64]
    lg: NDArray[np.uint8]  # by group
    parts: NDArray[np.uint16]
    tuples: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.starts, self.lg, self.parts, self.tuples))

    def packed(self) -> str:
        sizes = np.diff(self.starts).astype("<u2")
        arrays = (self.lg, sizes, self.parts.astype("<u2"), self.tuples.astype("<u4"))
        data = b"".join(array.tobytes() for array in arrays)
        size = len(data).to_bytes(4, "little")
        return base64.b64encode(size + pa.compress(data, "zstd", asbytes=True)).decode()

    @classmethod
    def unpacked(cls, text: bytes, groups: int) -> "KeyCounts":
        whole = base64.b64decode(text)
        data = pa.decompress(whole[4:], int.from_bytes(whole[:4], "little"), "zstd", asbytes=True)
        lg = np.frombuffer(data, np.uint8, groups)
        sizes = np.frombuffer(data, "<u2", groups, groups)
        starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        entries, at = int(starts[-1]), 3 * groups
        parts = np.frombuffer(data, "<u2", entries, at).astype(np.uint16)
        return cls(starts, lg, parts, np.frombuffer(data, "<u4", entries, at + 2 * entries).astype(np.float64))


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
        while lg > LEAST_LG and np.count_nonzero(found) > MOST_ENTRIES:
            found, lg = found.reshape(-1, 2).sum(axis=1), lg - 1
        parts.append(np.flatnonzero(found))
        tuples.append(found[parts[-1]])
        lgs.append(lg)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return KeyCounts(
        np.concatenate(([0], np.cumsum(sizes))),
        np.array(lgs, np.uint8),
        np.concatenate(parts).astype(np.uint16),
        np.concatenate(tuples).astype(np.float64),
    )
