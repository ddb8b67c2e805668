"""The most frequent keys, on the frequent-items sketch of Apache DataSketches."""

from typing import Any, Self

import datasketches
import numpy as np
import pyarrow.compute as pc

from promising.errors import BadQuestion, BadSize, CorruptSummary, MixedKeys
from promising.summaries.adt import TOLERANCE, Estimate, Estimates, FrequencySummary, empty_like, read_total
from promising.summaries.cells import Held, Part, SummaryCells, keys
from promising.summaries.frame import Reader, block, integers
from promising.summaries.keys import Key, Keys, as_counts, as_keys, distinct_keys, key_list

EVICTED = 2  # added to the sort of keys: error and tuples of evicted keys stand before the sketch


class Frequent(FrequencySummary):
    """At most 0.75 * 2**lg_k keys with their counts; the rarest are evicted when it is full (Misra-Gries).

    **Bounds** always hold. All keys share one error bound, at most 3.5 / 2**lg_k of the tuples and 0 before the first
    eviction: a stored key has at least its counter and at most that much more, an evicted one at most that much.

    **Confidence** is 1 if that error is at most `TOLERANCE` * total, else 0.

    It cannot subtract. After deserialisation it gives the same answers, but may evict other keys later and serialise
    its keys in another order.

    >>> items = Frequent(lg_k=5)
    >>> items.summarize(np.arange(1000), counts=np.where(np.arange(1000) < 2, 4000, 1))
    >>> [key for key, estimate in items.top(2)]
    [0, 1]
    """

    kind = "frequent"
    subtracts = False

    def __init__(self, lg_k: int = 10) -> None:
        if not 3 <= lg_k <= 24:
            raise BadSize(f"lg_k {lg_k}: 3 to 24 is wanted")
        self.lg_k = lg_k
        self.total = 0
        self._strings: bool | None = None
        self._sketch: Any = None
        self._lost = self._lost_total = (
            0  # error and tuples of sketches that had evicted all keys: DataSketches drops both
        )

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Count keys: integers or strings, not both."""
        given = as_keys(values)
        weights = as_counts(counts, len(given), self.total)
        unique, sums = distinct_keys(given, weights)
        if not unique:
            return
        self._settle(not isinstance(given, np.ndarray))
        for key, count in zip(unique, sums.tolist(), strict=True):
            self._sketch.update(key, count)
        self.total += int(weights.sum())

    def _settle(self, strings: bool) -> None:
        """The first key determines the type of all."""
        if self._strings is None:
            self._strings = strings
            sketch = datasketches.frequent_strings_sketch if strings else datasketches.frequent_items_sketch
            self._sketch = sketch(self.lg_k)
        elif self._strings is not strings:
            raise MixedKeys("row 0: integers and strings in one summary of frequent keys")

    def estimates(self, keys: Any) -> Estimates:
        column: Keys = as_keys(keys)
        strings = not isinstance(column, np.ndarray)
        if self._strings is not strings:
            nothing = np.zeros(len(column))
            return Estimates(nothing, nothing, nothing)
        wanted = key_list(column)
        asked = (self._sketch.get_estimate, self._sketch.get_lower_bound, self._sketch.get_upper_bound)
        value, lower, upper = (np.array([ask(key) for key in wanted], np.float64) for ask in asked)
        value = np.where(lower > 0, value + self._lost, value)
        return Estimates(np.minimum(value, self.total), lower, np.minimum(upper + self._lost, self.total))

    def top(self, n: int) -> list[tuple[Key, Estimate]]:
        """The `n` stored keys with the greatest upper bounds, ties by key. No other key exceeds the last bound."""
        if n < 0:
            raise BadQuestion(f"the top {n} keys")
        if self._sketch is None:
            return []
        rows = self._sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
        rows.sort(key=lambda row: (-row[3], row[0]))
        made = []
        for key, value, lower, upper in rows[:n]:
            bounds = (value + self._lost, lower, upper + self._lost)
            made.append((key, Estimate(*(float(min(number, self.total)) for number in bounds))))
        return made

    @property
    def stored(self) -> int:
        """The keys it stores."""
        return 0 if self._sketch is None else int(self._sketch.num_active_items)

    def confidence(self) -> float:
        return float(self._error() <= TOLERANCE * self.total)

    def _error(self) -> int:
        """The common error: the distance between the bounds of any key."""
        if self._sketch is None:
            return 0
        key: Key = "" if self._strings else 0
        return int(self._sketch.get_upper_bound(key) - self._sketch.get_lower_bound(key)) + self._lost

    def _sizes(self) -> str:
        return f"lg_k={self.lg_k}"

    def _add(self, other: Self) -> None:
        if other._strings is not None:
            self._settle(other._strings)
            lost, lost_total = other._evicted()
            self._lost += lost
            self._lost_total += lost_total
            self._sketch.merge(other._sketch)

    def _evicted(self) -> tuple[int, int]:
        """Error and tuples that neither merging nor the bytes of the sketch carry."""
        return (self._error(), self.total) if self._sketch.is_empty() else (self._lost, self._lost_total)

    def _payload(self) -> bytes:
        if self._strings is None:
            return integers(self.lg_k, self.total, -1)
        lost, lost_total = self._evicted()
        head = integers(self.lg_k, self.total, self._strings + (EVICTED if lost_total else 0))
        more = integers(lost, lost_total) if lost_total else b""
        return head + more + block(self._sketch.serialize(*([] if self._strings else [datasketches.PyLongsSerDe()])))

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        lg_k, total, strings = reader.integer(), read_total(reader), reader.integer()
        summary: Self = empty_like(cls, lg_k)
        if strings == -1 and total == 0:
            return summary
        if strings in (EVICTED, EVICTED + 1):
            strings -= EVICTED
            summary._lost, summary._lost_total = reader.integer(), reader.integer()
            if not 0 < summary._lost <= summary._lost_total <= total:
                raise CorruptSummary(f"an error of {summary._lost} for {summary._lost_total} of {total} tuples")
        if strings not in (0, 1):
            raise CorruptSummary(f"{total} tuples with keys of sort {strings}")
        summary.total, summary._strings, data = total, strings == 1, reader.block()
        try:
            if strings:
                summary._sketch = datasketches.frequent_strings_sketch.deserialize(data)
            else:
                summary._sketch = datasketches.frequent_items_sketch.deserialize(data, datasketches.PyLongsSerDe())
            summary.top(0)  # decodes the keys
        except Exception as error:  # the key reader may raise anything
            raise CorruptSummary(f"no sketch of frequent keys: {error}") from None
        if summary._sketch.total_weight + summary._lost_total != total:
            raise CorruptSummary(f"a sketch of {summary._sketch.total_weight} tuples, not of {summary!r}")
        return summary


LONGEST = 256  # bytes of a string that is stored


class FrequentCells(SummaryCells):
    """FREQUENT(column): the frequent items of a zone. Strings of more than `LONGEST` bytes are counted apart: they
    are never listed, and any of them may be as frequent as all of them."""

    types = frozenset({"int", "string", "timestamp"})
    figures = ("most_frequent",)

    def make(self) -> Frequent:
        return Frequent()

    def column(self, part: Part) -> tuple[Any, int]:
        found = keys(part)
        if part.values is None and part.text.nbytes > LONGEST:
            short = pc.less_equal(pc.binary_length(found), LONGEST)
            if not pc.all(short).as_py():
                stored = found.filter(short)
                return stored, len(found) - len(stored)
        return found, 0

    def bytes_of(self, summary: Frequent) -> int:
        return 512 + summary.stored * (128 if self.type == "string" else 32)

    def ceiling(self, cells: int) -> int:
        return cells * (512 + 1024 * (LONGEST + 128 if self.type == "string" else 32))

    def estimate(self, state: Held, cell: int, *question: Any) -> Estimate:
        """The count of a value."""
        found: Estimate = state.summaries[cell].estimate(*question)
        long = isinstance(question[0], str) and len(question[0].encode()) > LONGEST
        return Estimate(0.0, 0.0, float(state.apart[cell])) if long else found

    def number(self, state: Held, cell: int, name: str) -> float:
        """The count of the most frequent value."""
        found = state.summaries[cell].top(1)
        return float(found[0][1].value) if found else np.nan

    def top(self, state: Held, n: int) -> list[tuple[Key, Estimate]]:
        """The `n` stored values with the greatest upper bounds in the first cell."""
        found: list[tuple[Key, Estimate]] = state.summaries[0].top(n)
        return found
