"""The common base of count-sketch and count-min: rows of counters addressed by the hash of a key."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from promising.errors import BadSize
from promising.summaries.adt import FrequencySummary, empty_like, read_total
from promising.summaries.frame import Reader, integers
from promising.summaries.hashing import hash_checked, inner_seed
from promising.summaries.keys import Longs, as_counts, as_keys
from promising.summaries.sizing import DEEPEST, WIDEST

Hashes = npt.NDArray[np.uint64]


class Table(FrequencySummary):
    """`depth` rows of `width` int64 counters, linear in the tuples: adding tables adds the streams, bit for bit."""

    def __init__(self, depth: int = 5, width: int = 64, seed: int = 0) -> None:
        if not 1 <= depth <= DEEPEST:
            raise BadSize(f"depth {depth}: 1 to {DEEPEST} rows are wanted")
        if not (2 <= width <= WIDEST and width & (width - 1) == 0):
            raise BadSize(f"width {width}: a power of two is wanted, 2 to 2**24")
        inner_seed(seed)
        self.depth, self.width, self.seed = depth, width, seed
        self.counters: npt.NDArray[np.int64] = np.zeros((depth, width), np.int64)
        self.total = 0
        self._changed()

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Count keys: integers or strings."""
        keys = as_keys(values)
        weights = as_counts(counts, len(keys), self.total)
        self._update(hash_checked(keys, self.seed), weights)
        self.total += int(weights.sum())

    @abstractmethod
    def _update(self, hashes: Hashes, counts: Longs) -> None:
        """Count hashed keys, and update derived values."""

    @abstractmethod
    def _changed(self) -> None:
        """Recompute derived values from the counters."""

    def _sizes(self) -> str:
        return f"depth={self.depth} width={self.width}"

    def _shared_seed(self) -> int:
        return self.seed

    def _add(self, other: Self) -> None:
        self.counters += other.counters
        self._changed()

    def _subtract(self, other: Self) -> None:
        self.counters -= other.counters
        self._changed()

    def _payload(self) -> bytes:
        return integers(self.depth, self.width, self.seed, self.total) + self.counters.astype("<i8").tobytes()

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        depth, width, seed, total = reader.integer(), reader.integer(), reader.integer(), read_total(reader)
        cells = reader.integers(depth * width)
        table: Self = empty_like(cls, depth, width, seed)
        table.counters[:] = cells.reshape(depth, width)
        table.total = total
        table._check_counters()
        table._changed()
        return table

    @abstractmethod
    def _check_counters(self) -> None:
        """`CorruptSummary` if no stream of `total` tuples yields these counters."""
