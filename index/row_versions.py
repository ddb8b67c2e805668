"""The versions of a table's rows: each holds from the change that brought it (`born`) up to the one that ends it
(`died`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index.growing import Growing, GrowingColumn, length, to_arrow
from promising.index.schema import Column

Ints = NDArray[np.int64]

HOLDS = 1 << 62
"""The change that ends a version that holds: later than all that there are. No time."""


@dataclass(frozen=True)
class TableRecord:
    """One change or many, so that they can be made again: versions that came, and those that ended."""

    first: int
    """Number of the change before; nothing is known of earlier ones."""
    positions: list[dict[str, int]]
    """Arrivals of each stream so far, change by change."""
    following: int
    """Number of the version that comes next."""
    rows: dict[str, Column]
    numbers: Ints
    born: Ints
    ended: Ints
    """Numbers of versions, in the order in which they ended."""
    died: Ints

    @property
    def last(self) -> int:
        return self.first + len(self.positions)


class Versions:
    """All that are remembered, in the order in which they came.

    A version has a number for good, and a place, which changes when others are forgotten. Whoever calls holds the lock
    of the table.
    """

    def __init__(self, table: str, types: Mapping[str, str], key: str) -> None:
        self.holding = 0
        """How many hold: the rows of the table."""
        self.following = 0
        """Number of the version that comes next."""
        self.columns = {column: GrowingColumn(kind) for column, kind in types.items()}
        self.numbers, self.born, self.died = Growing(np.int64), Growing(np.int64), Growing(np.int64)
        self._table, self._types, self._key = table, types, key
        self._before = Growing(np.int64)  # place of the version of the same key before; -1: none
        self._codes: dict[Any, int] = {}
        self._latest = Growing(np.int64)  # place of the newest version, by code of the key
        self._ended, self._ended_at = Growing(np.int64), Growing(np.int64)  # versions in the order of their end

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Memory of the columns; keys are in memory once more, in a dict."""
        every: list[Growing | GrowingColumn] = [*self.columns.values(), self.numbers, self.born, self.died]
        every += [self._before, self._latest, self._ended, self._ended_at]
        return sum(part.nbytes for part in every)

    # --- read ----------------------------------------------------------------------------------------------------

    def rows(self, places: Ints) -> dict[str, Column]:
        """All columns at these places; memory of its own."""
        return {name: column.take(places) for name, column in self.columns.items()}

    def column(self, name: str, places: Ints) -> pa.Array:
        """A column at these places."""
        return to_arrow(self._types[name], self.columns[name].take(places))

    def places(self, versions: Ints) -> Ints:
        """Where versions stand, by their numbers."""
        numbers = self.numbers.values
        if len(numbers) == self.following:  # none was ever forgotten
            places = np.asarray(versions, np.int64)
            known = (places >= 0) & (places < len(numbers))
        else:
            places = np.searchsorted(numbers, versions)
            known = numbers[np.minimum(places, len(numbers) - 1)] == versions if len(numbers) else places < 0
        if not known.all():
            raise UnknownName(f"table {self._table!r} has no version {int(versions[~known][0])}, or has forgotten it")
        return places

    def find(self, keys: Column, change: Ints | None) -> Ints:
        """Numbers of the versions of keys that hold after each of these changes, None: now; -1: none."""
        places, died = self._newest(keys), self.died.values
        if change is None:
            found = places >= 0
            found[found] = died[places[found]] == HOLDS
        else:
            asked = np.broadcast_to(change, len(places))
            born, before = self.born.values, self._before.values
            later = np.flatnonzero(places >= 0)
            while len(later := later[born[places[later]] > asked[later]]):
                places[later] = before[places[later]]
                later = later[places[later] >= 0]
            found = places >= 0
            found[found] = died[places[found]] > asked[found]
        out = np.full(len(places), -1, np.int64)
        out[found] = self.numbers.values[places[found]]
        return out

    def current(self, keys: Column) -> Ints:
        """Places of the rows of keys; -1: none."""
        places = self._newest(keys)
        places[places >= 0] = np.where(self.died.values[places[places >= 0]] == HOLDS, places[places >= 0], -1)
        return places

    def _newest(self, keys: Column) -> Ints:
        """Places of the newest versions of keys, whether they hold or not; -1: none."""
        codes = np.fromiter((self._codes.get(key, -1) for key in plain_keys(keys)), np.int64, length(keys))
        out = np.full(len(codes), -1, np.int64)
        known = codes >= 0 if keys.nulls is None else (codes >= 0) & ~keys.nulls
        out[known] = self._latest.values[codes[known]]
        return out

    def since(self, change: int) -> tuple[Ints, Ints]:
        """Numbers of the versions that came after that change and hold, and of those that held then and have ended."""
        fresh = int(np.searchsorted(self.born.values, change, side="right"))
        came = self.numbers.values[fresh:][self.died.values[fresh:] == HOLDS]
        went = self._ended.values[np.searchsorted(self._ended_at.values, change, side="right") :]
        return came, went[self.born.values[self.places(went)] <= change]

    # --- change --------------------------------------------------------------------------------------------------

    def add(self, record: TableRecord) -> None:
        """Versions that came, and ends of versions: some may have come with it."""
        size, start = len(record.numbers), len(self)
        for name, column in record.rows.items():
            self.columns[name].append(column)
        self.numbers.append(record.numbers)
        self.born.append(record.born)
        self.died.append(np.full(size, HOLDS, np.int64))
        self.following = record.following
        self.died.values[self.places(record.ended)] = record.died
        self._ended.append(record.ended)
        self._ended_at.append(record.died)
        self._link(plain_keys(record.rows[self._key]), start)
        self.holding += size - len(record.ended)

    def _link(self, keys: list[Any], start: int) -> None:
        """Have versions from a place on found by their keys."""
        codes, known = self._codes, len(self._codes)
        found = np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.int64, len(keys))
        self._latest.append(np.full(len(codes) - known, -1, np.int64))
        latest, places = self._latest.values, np.arange(start, start + len(keys))
        order = np.argsort(found, kind="stable")
        sorted_codes = found[order]
        again = np.flatnonzero(sorted_codes[1:] == sorted_codes[:-1])
        before = np.empty(len(keys), np.int64)
        before[order] = latest[sorted_codes]
        before[order[again + 1]] = places[order[again]]
        latest[sorted_codes] = places[order]  # of a key that comes more than once, the last
        self._before.append(before)

    def trim(self, change: int) -> None:
        """Forget those that ended by that change, once they are a quarter of all."""
        gone = int(np.searchsorted(self._ended_at.values, change, side="right"))
        if not gone or gone * 4 < len(self):
            return
        places = np.flatnonzero(self.died.values > change)
        for column in self.columns.values():
            column.keep(places)
        self.numbers, self.born, self.died = (
            Growing(np.int64, part.values[places]) for part in (self.numbers, self.born, self.died)
        )
        self._ended, self._ended_at = (
            Growing(np.int64, part.values[gone:].copy()) for part in (self._ended, self._ended_at)
        )
        self._codes, self._latest, self._before = {}, Growing(np.int64), Growing(np.int64)
        self._link(plain_keys(self.columns[self._key].take(np.arange(len(places)))), 0)

    def image(self, first: int, positions: list[dict[str, int]]) -> TableRecord:
        """All that is remembered, as one record of the changes after `first`."""
        return TableRecord(
            first,
            positions,
            self.following,
            self.rows(np.arange(len(self))),
            self.numbers.values.copy(),
            self.born.values.copy(),
            self._ended.values.copy(),
            self._ended_at.values.copy(),
        )


def plain_keys(column: Column) -> list[Any]:
    """Keys as a dict has them."""
    found: list[Any] = column.text.to_pylist() if column.values is None else column.values.tolist()
    return found
