"""Planning for those who read by themselves: which row groups and arrivals can hold tuples of an answer.

A row group is left out if no tuple of it can be in the answer: by time (the snapshot's bounds), by ranges that
conditions give a column of whole numbers or times (the statistics of the file's footer), and by key: with summaries on
the join columns, or on a column that is compared with constants, only groups count that have a tuple of a wanted key.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.errors import BadQuestion, DataDamaged, NoSummary, TokenExpired, Unsupported
from promising.index import Stream
from promising.index.scan_plan import Piece, Scan, ScanPlan
from promising.index.snapshot import Rows, Snapshot, postings_of
from promising.index.summary_index import SummaryIndex, best_summary
from promising.query import cardinality
from promising.query.binder import bind
from promising.query.bound import Bound
from promising.query.catalog import Catalog
from promising.query.column_ranges import ranges
from promising.query.key_rows import Counts, Hashes, Keys, Lists
from promising.query.planner import column_hasher, snapshots_of
from promising.query.preference import exact_counts
from promising.query.sql import parse
from promising.summaries.hashing import hash_keys

__all__ = ["Piece", "Scan", "ScanPlan", "fetch", "plan_scan"]

FETCHED = 1 << 14  # tuples read while a stream is kept still
LOADED = 1 << 20  # rows of keys looked at together
CLASSES = 8  # of row groups that are about as promising, in one file


Written = Callable[[exp.Expression, Bound], str]
"""Writes a SELECT for another engine; raises Unsupported at the place of what that engine cannot do alike."""


def plan_scan(catalog: Catalog, sql: str, share: float = 1.0, written: Written | None = None) -> ScanPlan:
    """What has to be read to answer a SELECT, as its streams stand now.

    share: below 1, the most promising keys only, as many as make that share of the expected output. The output of a key
    is what its tuples, or pairs, are in number: exact unless a window cuts.
    written: how the plan's statement is written; None leaves it as it was given.
    """
    if not 0 < share <= 1:
        raise BadQuestion(f"the share of an answer is above 0 and at most 1, not {share!r}")
    node = parse(sql)
    if not isinstance(node, exp.Query):
        raise Unsupported("a scan is planned for a SELECT", sql, 0)
    bound = bind(node, sql, catalog)
    text = sql if written is None else written(node, bound)
    return _Planner(bound, sql, share).plan(text)


class _Planner:
    def __init__(self, bound: Bound, sql: str, share: float) -> None:
        self.bound = bound
        self.sql = sql
        self.share = share
        self.preference = bound.preference

    def plan(self, text: str) -> ScanPlan:
        bound = self.bound
        snapshots = snapshots_of(bound, [])
        self.sides = [_Side(bound, number, snapshot) for number, snapshot in enumerate(snapshots)]
        expected = cardinality.candidates(bound, snapshots).value
        share, hashes = 1.0, None
        keys = self._keys(snapshots)
        if keys is None and self.share < 1:
            raise NoSummary(
                "a share of an answer is told by keys: join on columns that have summaries, or name one in WITH"
                " PREFERENCE SUMMARY.Estimate.Count(column)",
                self.sql,
                0,
            )
        if keys is not None:
            chosen = self._choose(keys)
            expected, share = chosen.expected, chosen.share
            hashes = chosen.hashes.tolist() if self.share < 1 else None
            ranked = self.share < 1 or self.preference is not None
            for side, known, weights in zip(self.sides, keys, chosen.weights, strict=True):
                side.mark(known, chosen.hashes, weights, ranked=ranked)
        rarest = self.preference is not None and self.preference.direction == "ASC"
        attributes = tuple(None if keys is None else a for a in self._attributes())
        if hashes is not None:
            for side, attribute in zip(self.sides, attributes, strict=True):
                assert attribute is not None
                side.also(attribute)
        scans = [side.scan(rarest=rarest) for side in self.sides]
        return ScanPlan(scans, text, hashes, attributes, snapshots[0].stream.seed, expected, share)

    # --- keys ----------------------------------------------------------------------------------------------------

    def _attributes(self) -> tuple[str | None, ...]:
        """The column whose values are keys, on each side."""
        bound = self.bound
        if bound.join is not None:
            return bound.join.attributes
        if self.preference is not None:
            return (self.preference.estimates[0].attribute,)
        return (None if bound.constants is None else bound.constants.attribute,)

    def _keys(self, snapshots: list[Snapshot]) -> "list[_EveryRow] | None":
        """The directories of keys on all sides; None if one side has none."""
        found = []
        for number, (snapshot, attribute) in enumerate(zip(snapshots, self._attributes(), strict=True)):
            summary: SummaryIndex | None = None
            if self.bound.join is not None:
                summary = self.bound.join.summaries[number]
            elif attribute is not None:
                summary = best_summary(snapshot.stream.summaries, attribute)
            postings = None if summary is None else postings_of(summary)
            if postings is None or attribute is None:
                return None
            hasher = column_hasher(snapshot, attribute)
            found.append(_EveryRow(snapshot, hasher, postings, exact=False, summary=summary))
        return found

    def _choose(self, keys: "list[_EveryRow]") -> "_Chosen":
        """The keys that are wanted, best first where only some are."""
        hashes = self._wanted(keys)
        counts = [known.counts(hashes) for known in keys]
        kept = np.logical_and.reduce([c > 0 for c in counts])
        hashes, counts = hashes[kept], [c[kept] for c in counts]
        expected = np.prod([c.astype(np.float64) for c in counts], axis=0)
        total = share = float(expected.sum())
        if self.share < 1:
            order = np.lexsort((hashes, -self._priority(counts, expected)))
            made = np.cumsum(expected[order])
            enough = int(np.searchsorted(made, self.share * total)) + 1
            order = order[:enough]
            hashes, counts, expected = hashes[order], [c[order] for c in counts], expected[order]
            share = float(expected.sum())
        weights = [expected / c / total for c in counts]
        return _Chosen(hashes, weights, share, share / total if total else 1.0)

    def _wanted(self, keys: "list[_EveryRow]") -> Hashes:
        """All keys that can be in the answer, each once: those of constants, or all of the smaller directory."""
        constants = self.bound.constants
        if constants is not None and (self.bound.join is not None or constants.attribute == self._attributes()[0]):
            return np.unique(hash_keys(constants.values, keys[0].snapshot.stream.seed).view(np.int64))
        parts: list[Hashes] = []
        for part in min(keys, key=lambda known: known.postings.lines).listed():
            if part is None:
                parts = []
            else:
                parts.append(part)
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _priority(self, counts: list[Counts], expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """In which order keys are taken: as the preference says; else the most output first."""
        preference = self.preference
        if preference is None or preference.side is not None:
            return expected
        if preference.direction == "WEIGHTED":
            raise Unsupported("WEIGHTED draws at random, and has no first share: use DESC or ASC", self.sql, 0)
        known: dict[tuple[int, str | None], Counts] = {
            (e.side, e.attribute): counts[e.side] for e in preference.estimates
        }
        return preference.priority(preference.value(exact_counts(preference.estimates, known), len(expected)))


@dataclass(frozen=True)
class _Chosen:
    """Keys, the share of the whole output that one tuple of each takes part in on each side, and what they make."""

    hashes: Hashes
    weights: list[NDArray[np.float64]]
    expected: float
    share: float


class _EveryRow(Keys):
    """Finds rows without a look at their times, those outside of the snapshot included: nothing is read from disk."""

    def _kept(self, rows: Rows, counts: Counts) -> Lists:
        return Lists(rows, np.cumsum(counts) - counts, counts)


# --- one stream --------------------------------------------------------------------------------------------------


@dataclass
class _File:
    """A run that may hold tuples of the answer. By group: bytes of the columns asked for, whether times cross a border
    of the snapshot, whether the group is wanted, and the share of the output that its tuples take part in."""

    run: int
    path: str
    entry: dict[str, Any]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    """Bytes of the time column."""
    crosses: NDArray[np.bool_]
    wanted: NDArray[np.bool_]
    promise: NDArray[np.float64]


class _Side:
    """One stream: its chunks as they stood, and what of them is wanted."""

    def __init__(self, bound: Bound, number: int, snapshot: Snapshot) -> None:
        source = bound.sources[number]
        self.stream, self.alias, self.snapshot = source.stream, source.alias, snapshot
        self.time = self.stream.schema.time
        self.ranked = False
        self._columns = _used(bound, number)
        self._ranges = ranges(bound, number)
        low, high = self._ranges.get(self.time, (snapshot.start, snapshot.end - 1))
        self._low, self._high = max(low, snapshot.start), min(high, snapshot.end - 1)
        with snapshot.holding(), self.stream.reading() as log:
            starts, used, earliest, latest = log.spans()
            bases, runs, places = log.homes()
            self._reader: Any = log.reader
            self._chunk = log.chunk
            self._slots = np.full(log.capacity // log.chunk, -1, np.int64)
        if not hasattr(self._reader, "file"):  # cold tuples are nowhere that others could read
            runs = np.full_like(runs, -1)
        old = bases < snapshot.until
        near = old & (latest >= self._low) & (earliest <= self._high)
        self._slots[starts[near] // self._chunk] = np.arange(int(near.sum()))
        self._bases, self._runs, self._places = bases[near], runs[near], places[near]
        self._used = np.minimum(used[near], snapshot.until - self._bases)
        self._crosses = (earliest[near] < snapshot.start) | (latest[near] >= snapshot.end)
        self._warm = self._runs < 0
        self._all_runs = np.unique(runs[old & (runs >= 0)])
        self._files: dict[int, _File] | None = None

    def also(self, column: str) -> None:
        """One more column that is needed."""
        if column not in self._columns:
            self._columns.append(column)
            self._files = None if self._files is None else {f.run: self._sized(f) for f in self._files.values()}

    # --- files ---

    @property
    def files(self) -> dict[int, _File]:
        if self._files is None:
            self._files = {int(run): self._file(int(run)) for run in np.unique(self._runs[self._runs >= 0])}
        return self._files

    def _look(self, run: int) -> tuple[Any, Any]:
        try:
            known, footer = self._reader.file(run)
        except DataDamaged:
            with self.snapshot.holding():  # says so if it has aged out meanwhile
                raise
        return known, footer

    def _file(self, run: int) -> _File:
        known, footer = self._look(run)
        groups = range(known.groups)
        path = known.path if "://" in known.path else os.path.abspath(known.path)
        wanted, crosses = np.ones(known.groups, np.bool_), np.zeros(known.groups, np.bool_)
        for name, (low, high) in (self._ranges | {self.time: (self._low, self._high)}).items():
            for group in groups:
                found = footer.meta.row_group(group).column(footer.index(name)).statistics
                if found is not None and found.has_min_max:
                    wanted[group] &= found.max_raw >= low and found.min_raw <= high
                    if name == self.time:
                        crosses[group] = found.min_raw < self.snapshot.start or found.max_raw >= self.snapshot.end
        none = np.zeros(known.groups, np.int64)
        made = _File(run, path, known.entry, none, none, crosses, wanted, np.zeros(known.groups))
        return self._sized(made)

    def _sized(self, file: _File) -> _File:
        _, footer = self._look(file.run)
        columns = [footer.index(name) for name in self._columns]
        time = footer.index(self.time)
        groups = range(len(file.wanted))
        file.sizes = np.array([sum(footer.range(g, c)[1] for c in columns) for g in groups], np.int64)
        file.times = np.array([footer.range(g, time)[1] for g in groups], np.int64)
        return file

    # --- keys ---

    def mark(self, keys: _EveryRow, hashes: Hashes, weights: NDArray[np.float64], *, ranked: bool) -> None:
        """Only what has a tuple of one of these keys is wanted."""
        self.ranked = ranked
        counts = keys.counts(hashes)
        possible = {run: file.wanted for run, file in self.files.items()}
        for file in self.files.values():
            file.wanted = np.zeros(len(file.wanted), np.bool_)
        warm = self._warm
        self._warm = np.zeros(len(warm), np.bool_)
        ends = np.cumsum(counts)
        at = 0
        while at < len(hashes):
            stop = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + LOADED, side="right")))
            lists = _finished(keys.load(hashes[at:stop]))
            self._enter(lists, np.repeat(weights[at:stop], lists.counts))
            at = stop
            if not ranked and self._all(possible, warm):
                break
        for run, file in self.files.items():
            file.wanted &= possible[run]
        self._warm &= warm

    def _enter(self, lists: Lists, weights: NDArray[np.float64]) -> None:
        if not len(self._used):
            return
        slots = self._slots[lists.rows // self._chunk]
        local = lists.rows % self._chunk
        here = (slots >= 0) & (local < self._used[slots])
        slots, local, weights = slots[here], local[here], weights[here]
        runs = self._runs[slots]
        self._warm[np.unique(slots[runs < 0])] = True
        order = np.argsort(runs, kind="stable")
        edges = np.flatnonzero(np.diff(runs[order])) + 1
        for part in np.split(order, edges):
            if not len(part) or (run := int(runs[part[0]])) < 0:
                continue
            file = self.files[run]
            groups = self._reader.group_of(run)[self._places[slots[part]] + local[part]]
            file.promise += np.bincount(groups, weights[part], len(file.promise))
            file.wanted[np.unique(groups)] = True

    def _all(self, possible: dict[int, NDArray[np.bool_]], warm: NDArray[np.bool_]) -> bool:
        """Whether all that is possible is wanted already."""
        return bool(self._warm[warm].all()) and all(f.wanted[possible[r]].all() for r, f in self.files.items())

    # --- the outcome ---

    def scan(self, *, rarest: bool) -> Scan:
        snapshot = self.snapshot
        cut = bool(self._crosses[self._warm].any()) or any(f.crosses[f.wanted].any() for f in self.files.values())
        columns = self._columns
        if (cut or not columns) and self.time not in columns:
            columns = [*columns, self.time]
            for file in self.files.values():
                file.sizes = file.sizes + file.times
        files = [file for file in self.files.values() if file.wanted.any()]
        pieces = [piece for file in files for piece in _pieces(file, self.ranked)]
        if self.ranked:
            sign = 1 if rarest else -1
            pieces.sort(key=lambda piece: sign * piece.promise / max(piece.bytes, 1))
        return Scan(
            self.stream.name,
            self.alias,
            dict(self.stream.schema.types),
            columns,
            self.time,
            None if not cut else snapshot.start,
            None if not cut else snapshot.end,
            pieces,
            _joined(self._bases[self._warm], self._used[self._warm]),
            *self._total(),
        )

    def _total(self) -> tuple[int, int]:
        """Bytes and row groups of all runs; of those that were not looked at the average."""
        files = list(self.files.values())
        if not files and len(self._all_runs):
            self._files = {int(self._all_runs[0]): self._file(int(self._all_runs[0]))}
            files = list(self._files.values())
        more = len(self._all_runs) / max(len(files), 1)
        return round(sum(int(f.sizes.sum()) for f in files) * more), round(sum(len(f.sizes) for f in files) * more)


def _pieces(file: _File, ranked: bool) -> Iterator[Piece]:
    """One piece, or one for each class of groups that differ much in how promising they are."""
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


def _used(bound: Bound, side: int) -> list[str]:
    """The columns of a stream that the query looks at, in the order of its schema."""
    joined = () if bound.join is None else bound.join.values
    parts = [*bound.outputs, *bound.predicates, *bound.group_keys, *bound.arguments, *joined]
    parts += [order.value for order in bound.order]
    names = {i.name for part in parts if part is not None for i in part.inputs if i.source == side}
    return [name for name in bound.sources[side].stream.schema.types if name in names]


def _joined(bases: NDArray[np.int64], used: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Stretches of arrivals, those next to each other as one."""
    out: list[tuple[int, int]] = []
    for first, last in zip(bases.tolist(), (bases + used).tolist(), strict=True):
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return out


def _finished(steps: Any) -> Lists:
    """What a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            lists: Lists = end.value
            return lists


# --- tuples ------------------------------------------------------------------------------------------------------


def fetch(stream: Stream, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
    """The tuples that arrived as number `first` up to `last`, not included, in order of arrival.

    In slices, between which the stream goes on. Those that went cold meanwhile are read from disk; once one has been
    let go of, TokenExpired says so.
    """
    if not columns:
        raise BadQuestion("no columns are asked for")
    if not 0 <= first <= last:
        raise BadQuestion(f"arrivals go from a first to a last, not from {first!r} to {last!r}")
    with stream.reading() as log:
        names = log.names(columns)
        if last > log.arrived:
            raise BadQuestion(f"stream {stream.name!r} has had {log.arrived:,} arrivals, and not yet {last:,}")
    at = first
    while at < last:
        with stream.reading() as log:
            starts, used, _, _ = log.spans()
            bases, _, _ = log.homes()
            slot = int(np.searchsorted(bases, at, side="right")) - 1
            if slot < 0 or at >= bases[slot] + used[slot]:
                raise TokenExpired(
                    f"stream {stream.name!r} has let go of the tuple that arrived as number {at}; plan the scan again"
                )
            row = int(starts[slot] + at - bases[slot])
            size = min(last - at, int(bases[slot] + used[slot]) - at, FETCHED)
            table = log.take(np.arange(row, row + size, dtype=np.int32), names)
        yield table
        at += size
