"""The exact counter: every key with its count. The oracle of the tests, and the best choice for few keys."""

from typing import Any, Self

import numpy as np

from promising.errors import CorruptSummary, MixedKeys, NotContained
from promising.summaries.adt import Estimates, FrequencySummary, read_total
from promising.summaries.frame import Reader, integers
from promising.summaries.keys import Key, Keys, as_counts, as_keys, distinct_keys, key_bytes, key_list, read_keys


class Exact(FrequencySummary):
    """Counts without error: lower = value = upper, confidence 1. Memory grows with the number of distinct keys.

    >>> counter = Exact()
    >>> counter.summarize(["a", "b", "a"])
    >>> counter.estimate("a")
    Estimate(value=2.0, lower=2.0, upper=2.0)
    """

    kind = "exact"

    def __init__(self) -> None:
        self.total = 0
        self.counts: dict[Key, int] = {}

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Count keys: integers or strings, not both."""
        keys = as_keys(values)
        weights = as_counts(counts, len(keys), self.total)
        if len(keys):
            check_sort(self.counts, keys)
        for key, count in zip(*distinct_keys(keys, weights), strict=True):
            self.counts[key] = self.counts.get(key, 0) + int(count)
        self.total += int(weights.sum())

    def estimates(self, keys: Any) -> Estimates:
        value = np.array([self.counts.get(key, 0) for key in key_list(as_keys(keys))], np.float64)
        return Estimates(value, value, value)

    def confidence(self) -> float:
        return 1.0

    def _sizes(self) -> str:
        return "counter"

    def _add(self, other: Self) -> None:
        if other.counts:
            check_sort(self.counts, as_keys([next(iter(other.counts))]))
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count

    def _subtract(self, other: Self) -> None:
        for key, count in other.counts.items():
            if count > self.counts.get(key, 0):
                raise NotContained(f"cannot take {count} tuples of {key!r} from {self.counts.get(key, 0)}")
        left = {key: count - other.counts.get(key, 0) for key, count in self.counts.items()}
        self.counts = {key: count for key, count in left.items() if count}

    def _payload(self) -> bytes:
        keys = sorted(self.counts)
        counts = np.array([self.counts[key] for key in keys], "<i8")
        return integers(self.total) + key_bytes(as_keys(keys)) + counts.tobytes()

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        counter = cls()
        counter.total = read_total(reader)
        keys = key_list(read_keys(reader))
        counts = reader.integers(len(keys)).tolist()
        counter.counts = dict(zip(keys, counts, strict=True))
        if min(counts, default=1) < 1 or sum(counts) != counter.total or len(counter.counts) != len(keys):
            raise CorruptSummary(f"{len(keys)} keys with counts that do not make {counter.total} tuples")
        return counter


def check_sort(held: dict[Key, int], keys: Keys) -> None:
    """A summary of keys must not mix integers and strings."""
    strings = not isinstance(keys, np.ndarray)
    if held and isinstance(next(iter(held)), str) is not strings:
        come = ("strings", "integers") if strings else ("integers", "strings")
        raise MixedKeys(f"row 0: a column of {come[0]} for a summary of {come[1]}")
