"""The versions of a table's rows: each is valid from its `born` change up to its `died` change."""

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
    """One or more changes, for replay: versions created and versions ended."""

    first: int  # number of the previous change; earlier ones are unknown
    positions: list[dict[str, int]]  # arrivals of each stream so far, by change
    following: int  # number of the next version
    rows: dict[str, Column]
    numbers: Ints
    born: Ints
    ended: Ints  # version numbers, in order of their end
    died: Ints

    @property
    def last(self) -> int:
        return self.first + len(self.positions)


class Versions:
    """All stored versions in order of creation. Numbers are permanent, places are not. The caller holds the lock."""

    def __init__(self, table: str, types: Mapping[str, str], key: str) -> None:
        self.holding = 0  # current versions: the rows of the table
        self.following = 0  # number of the next version
        self.columns = {column: GrowingColumn(kind) for column, kind in types.items()}
        self.numbers, self.born, self.died = Growing(np.int64), Growing(np.int64), Growing(np.int64)
        self._table, self._types, self._key = table, types, key
        self._before = Growing(np.int64)  # place of the previous version of the same key; -1: none
        self._codes: dict[Any, int] = {}
        self._latest = Growing(np.int64)  # place of the newest version, by code of the key
        self._ended, self._ended_at = Growing(np.int64), Growing(np.int64)  # versions in order of their end

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Memory of the columns; keys are stored a second time, in a dict."""
        every: list[Growing | GrowingColumn] = [*self.columns.values(), self.numbers, self.born, self.died]
        every += [self._before, self._latest, self._ended, self._ended_at]
        return sum(part.nbytes for part in every)

    # --- read ----------------------------------------------------------------------------------------------------

    def rows(self, places: Ints) -> dict[str, Column]:
        return {name: column.take(places) for name, column in self.columns.items()}

    def column(self, name: str, places: Ints) -> pa.Array:
        return to_arrow(self._types[name], self.columns[name].take(places))

    def places(self, versions: Ints) -> Ints:
        numbers = self.numbers.values
        if len(numbers) == self.following:  # none was ever dropped
            places = np.asarray(versions, np.int64)
            known = (places >= 0) & (places < len(numbers))
        else:
            places = np.searchsorted(numbers, versions)
            known = numbers[np.minimum(places, len(numbers) - 1)] == versions if len(numbers) else places < 0
        if not known.all():
            raise UnknownName(f"table {self._table!r} has no version {int(versions[~known][0])}, or has forgotten it")
        return places

    def find(self, keys: Column, change: Ints | None) -> Ints:
        """Version numbers of keys after each of these changes, None: current; -1: none."""
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
        """Places of the current rows of keys; -1: none."""
        places = self._newest(keys)
        places[places >= 0] = np.where(self.died.values[places[places >= 0]] == HOLDS, places[places >= 0], -1)
        return places

    def _newest(self, keys: Column) -> Ints:
        """Places of the newest versions of keys, current or not; -1: none."""
        codes = np.fromiter((self._codes.get(key, -1) for key in plain_keys(keys)), np.int64, length(keys))
        out = np.full(len(codes), -1, np.int64)
        known = codes >= 0 if keys.nulls is None else (codes >= 0) & ~keys.nulls
        out[known] = self._latest.values[codes[known]]
        return out

    def since(self, change: int) -> tuple[Ints, Ints]:
        """Numbers of current versions created after that change, and of then-current versions that have ended."""
        fresh = int(np.searchsorted(self.born.values, change, side="right"))
        came = self.numbers.values[fresh:][self.died.values[fresh:] == HOLDS]
        went = self._ended.values[np.searchsorted(self._ended_at.values, change, side="right") :]
        return came, went[self.born.values[self.places(went)] <= change]

    # --- change --------------------------------------------------------------------------------------------------

    def add(self, record: TableRecord) -> None:
        """Apply a record: created versions, then ended ones, which may be among them."""
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
        """Index versions from a place on by their keys."""
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
        latest[sorted_codes] = places[order]  # the last one of a repeated key
        self._before.append(before)

    def trim(self, change: int) -> None:
        """Drop versions that ended by that change, once they are a quarter of all."""
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
        """Everything stored, as one record of the changes after `first`."""
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
    found: list[Any] = column.text.to_pylist() if column.values is None else column.values.tolist()
    return found
