"""The location of a snapshot's tuples, for an external reader: row groups of cold files, and chunks in memory.

Chunks are pruned by their time bounds, row groups by the statistics of the footer. After `mark`, only those with a
marked row are wanted.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.instants import EVER
from promising.index.scan_plan import Piece, Scan
from promising.index.snapshot import Rows, Snapshot
from promising.index.storage.cold import Cold
from promising.index.storage.cold_file import Footer, Run

CLASSES = 8  # classes of row groups in one file, by promise

Weights = NDArray[np.float64]
Marks = NDArray[np.bool_]


@dataclass
class _File:
    """A run that may hold tuples of the answer. By group: bytes of the requested columns, whether times cross the
    snapshot's border, whether it is wanted, and the fraction of the output that involves its tuples.
    """

    run: int
    path: str
    entry: dict[str, Any]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]  # bytes of the time column
    crosses: Marks
    wanted: Marks
    promise: Weights


class ColdScan:
    """The chunks of a snapshot, and which are wanted: at first all that can have tuples in range.

    ranges: the least and greatest relevant value, by column of numbers or times. columns: those to read.
    """

    def __init__(
        self, snapshot: Snapshot, ranges: Mapping[str, tuple[int | float, int | float]], columns: Iterable[str]
    ) -> None:
        self.snapshot = snapshot
        self._schema = snapshot.stream.schema
        self._columns = list(columns)
        self._ranked = False
        least, most = ranges.get(self._schema.time, EVER)
        low, high = max(least, snapshot.start), min(most, snapshot.end - 1)
        self._ranges = {**ranges, self._schema.time: (low, high)}
        with snapshot.holding(), snapshot.stream.reading() as log:
            starts, used, earliest, latest = log.spans()
            bases, runs, places = log.homes()
            self._cold = log.reader if isinstance(log.reader, Cold) else None
            self._chunk = log.chunk
            self._slots = np.full(log.capacity // log.chunk, -1, np.int64)
        if self._cold is None:  # no cold storage that others could read
            runs = np.full_like(runs, -1)
        old = bases < snapshot.until
        near = old & (latest >= low) & (earliest <= high)
        self._slots[starts[near] // self._chunk] = np.arange(int(near.sum()))
        self._bases, self._runs, self._places = bases[near], runs[near], places[near]
        self._used = np.minimum(used[near], snapshot.until - self._bases)
        self._crosses = (earliest[near] < snapshot.start) | (latest[near] >= snapshot.end)
        self._warm = self._runs < 0
        self._all_runs = np.unique(runs[old & (runs >= 0)])
        self._files: dict[int, _File] | None = None

    def also(self, column: str) -> None:
        if column not in self._columns:
            self._columns.append(column)
            for file in () if self._files is None else self._files.values():
                self._size(file)

    # --- files ---------------------------------------------------------------------------------------------------

    @property
    def files(self) -> dict[int, _File]:
        """By run, those that can have tuples in the time range; read on first use."""
        if self._files is None:
            self._files = {int(run): self._file(int(run)) for run in np.unique(self._runs[self._runs >= 0])}
        return self._files

    def _look(self, run: int) -> tuple[Run, Footer]:
        assert self._cold is not None
        try:
            return self._cold.file(run)
        except DataDamaged:
            with self.snapshot.holding():  # raises if it has aged out meanwhile
                raise

    def _file(self, run: int) -> _File:
        known, footer = self._look(run)
        path = known.path if "://" in known.path else os.path.abspath(known.path)
        wanted, crosses = np.ones(known.groups, np.bool_), np.zeros(known.groups, np.bool_)
        for name, (low, high) in self._ranges.items():
            for group in range(known.groups):
                extent = footer.extent(group, footer.index(name))
                if extent is not None:
                    wanted[group] &= extent[1] >= low and extent[0] <= high
                    if name == self._schema.time:
                        crosses[group] = extent[0] < self.snapshot.start or extent[1] >= self.snapshot.end
        none = np.zeros(known.groups, np.int64)
        made = _File(run, path, known.entry, none, none, crosses, wanted, np.zeros(known.groups))
        self._size(made)
        return made

    def _size(self, file: _File) -> None:
        _, footer = self._look(file.run)
        columns = [footer.index(name) for name in self._columns]
        time = footer.index(self._schema.time)
        groups = range(len(file.wanted))
        file.sizes = np.array([sum(footer.range(g, c)[1] for c in columns) for g in groups], np.int64)
        file.times = np.array([footer.range(g, time)[1] for g in groups], np.int64)

    # --- rows ----------------------------------------------------------------------------------------------------

    def mark(self, parts: Iterable[tuple[Rows, Weights]], *, ranked: bool) -> None:
        """Narrow down to groups and chunks with one of these rows; weights: each row's fraction of the output.

        ranked: whether the weights matter. If not, reading `parts` stops once everything is wanted.
        """
        self._ranked = ranked
        possible = {run: file.wanted for run, file in self.files.items()}
        for file in self.files.values():
            file.wanted = np.zeros(len(file.wanted), np.bool_)
        warm = self._warm
        self._warm = np.zeros(len(warm), np.bool_)
        for rows, weights in parts:
            self._enter(rows, weights)
            if not ranked and self._all(possible, warm):
                break
        for run, file in self.files.items():
            file.wanted &= possible[run]
        self._warm &= warm

    def _enter(self, rows: Rows, weights: Weights) -> None:
        if not len(self._used):
            return
        slots = self._slots[rows // self._chunk]
        local = rows % self._chunk
        here = (slots >= 0) & (local < self._used[slots])
        slots, local, weights = slots[here], local[here], weights[here]
        runs = self._runs[slots]
        self._warm[np.unique(slots[runs < 0])] = True
        order = np.argsort(runs, kind="stable")
        edges = np.flatnonzero(np.diff(runs[order])) + 1
        for part in np.split(order, edges):
            if not len(part) or (run := int(runs[part[0]])) < 0:
                continue
            assert self._cold is not None
            file = self.files[run]
            groups = self._cold.group_of(run)[self._places[slots[part]] + local[part]]
            file.promise += np.bincount(groups, weights[part], len(file.promise))
            file.wanted[np.unique(groups)] = True

    def _all(self, possible: dict[int, Marks], warm: Marks) -> bool:
        return bool(self._warm[warm].all()) and all(f.wanted[possible[r]].all() for r, f in self.files.items())

    # --- result --------------------------------------------------------------------------------------------------

    def scan(self, alias: str, *, rarest: bool) -> Scan:
        """The scan of what is wanted, the most promising first if rows were ranked; `rarest`: the least promising."""
        snapshot, time = self.snapshot, self._schema.time
        cut = bool(self._crosses[self._warm].any()) or any(f.crosses[f.wanted].any() for f in self.files.values())
        columns = self._columns
        if (cut or not columns) and time not in columns:
            columns = [*columns, time]
            for file in self.files.values():
                file.sizes = file.sizes + file.times
        files = [file for file in self.files.values() if file.wanted.any()]
        pieces = [piece for file in files for piece in _pieces(file, self._ranked)]
        if self._ranked:
            sign = 1 if rarest else -1
            pieces.sort(key=lambda piece: sign * piece.promise / max(piece.bytes, 1))
        return Scan(
            snapshot.stream.name,
            alias,
            dict(self._schema.types),
            columns,
            time,
            None if not cut else snapshot.start,
            None if not cut else snapshot.end,
            pieces,
            _joined(self._bases[self._warm], self._used[self._warm]),
            *self._total(),
        )

    def _total(self) -> tuple[int, int]:
        """Bytes and row groups of all runs; runs not read count as average."""
        files = list(self.files.values())
        if not files and len(self._all_runs):
            files = [self._file(int(self._all_runs[0]))]
        more = len(self._all_runs) / max(len(files), 1)
        return round(sum(int(f.sizes.sum()) for f in files) * more), round(sum(len(f.sizes) for f in files) * more)


def _pieces(file: _File, ranked: bool) -> Iterator[Piece]:
    """One piece, or one per class of groups with about the same promise."""
    groups = np.flatnonzero(file.wanted)
    density = file.promise[groups] / np.maximum(file.sizes[groups], 1)
    classes = np.zeros(len(groups), np.int64)
    if ranked and density.max() > 0:
        with np.errstate(divide="ignore"):
            classes = np.minimum(-np.log2(density / density.max()), CLASSES - 1).astype(np.int64)
    for number in np.unique(classes):
        part = groups[classes == number]
        promise = min(float(file.promise[part].sum()), 1.0)
        yield Piece(file.path, file.entry, part.tolist(), int(file.sizes[part].sum()), promise)


def _joined(bases: NDArray[np.int64], used: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of arrivals, adjacent ones merged."""
    out: list[tuple[int, int]] = []
    for first, last in zip(bases.tolist(), (bases + used).tolist(), strict=True):
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return out
