"""What a table must say, from all that was ever in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from promising.index.check import check_table
from promising.index.table import Changed, Table

Row = tuple[Any, ...]
TYPES = {"k": "int", "v": "string", "x": "float"}


@dataclass
class Truth:
    """The contents after each change, by key: the row, and the number of its version."""

    contents: list[dict[Any, tuple[Row, int]]] = field(default_factory=lambda: [{}])
    positions: list[dict[str, int]] = field(default_factory=list)
    following: int = 0
    floor: int = 0

    @property
    def now(self) -> dict[Any, tuple[Row, int]]:
        return self.contents[-1]

    def change(self, puts: Mapping[Any, Row], deletes: list[Any], positions: dict[str, int]) -> None:
        after = {key: held for key, held in self.now.items() if key not in deletes}
        for key, row in puts.items():
            if key not in self.now or self.now[key][0] != row:
                after[key] = (row, self.following)
                self.following += 1
        if after != self.now:
            self.contents.append(after)
            self.positions.append(dict(positions))

    def change_at(self, stream: str, seq: int) -> int:
        seen = [number for number, at in enumerate(self.positions, 1) if at.get(stream, 0) <= seq]
        return max([self.floor, *seen])

    def trim(self, oldest: dict[str, int]) -> None:
        self.floor = min([len(self.positions), *(self.change_at(stream, seq) for stream, seq in oldest.items())])

    def same(self, table: Table, keys: list[Any], streams: list[str]) -> None:
        """The table says what is true."""
        assert check_table(table) == []
        assert table.changes == len(self.positions)
        assert len(table) == len(self.now)
        assert sorted(zip(*table.rows().to_pydict().values(), strict=True)) == sorted(r for r, _ in self.now.values())
        for change in range(self.floor, len(self.contents)):
            there = self.contents[change]
            found = table.find(keys, np.full(len(keys), change))
            assert found.tolist() == [there[k][1] if k in there else -1 for k in keys]
            for key, number in zip(keys, found.tolist(), strict=True):
                if number >= 0:
                    row = tuple(table.take(name, np.array([number]))[0].as_py() for name in table.schema.types)
                    assert row == there[key][0]
            before, after = {n for _, n in there.values()}, {n for _, n in self.now.values()}
            came, went = table.since(change)
            assert (sorted(came), sorted(went)) == (sorted(after - before), sorted(before - after))
        assert table.find(keys).tolist() == [self.now[k][1] if k in self.now else -1 for k in keys]
        for stream in streams:
            seqs = list(range(0, 2 + max((p.get(stream, 0) for p in self.positions), default=0)))
            assert table.change_at(stream, np.array(seqs)).tolist() == [self.change_at(stream, seq) for seq in seqs]


def batch(puts: Mapping[Any, Row]) -> dict[str, list[Any]]:
    """Rows by key as a batch of columns."""
    return {name: [row[at] for row in puts.values()] for at, name in enumerate(TYPES)}


def done(found: Changed) -> tuple[int, int, int, int]:
    return found[1:]
