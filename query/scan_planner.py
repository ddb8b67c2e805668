"""Planning for those who read by themselves: which row groups and arrivals can hold tuples of an answer.

A row group is left out if no tuple of it can be in the answer: by time, by ranges that conditions give a column of
whole numbers or times (`ColdScan`), and by key: with summaries on the join columns, or on a column that is compared
with constants, only groups count that have a tuple of a wanted key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from promising.errors import BadQuestion, NoSummary, Unsupported
from promising.index.cold_scan import ColdScan
from promising.index.scan_plan import ScanPlan
from promising.index.snapshot import Rows, Snapshot, postings_of
from promising.index.summary_index import SummaryIndex, best_summary
from promising.query import cardinality
from promising.query.binder import bind
from promising.query.bound import Bound, used_columns
from promising.query.catalog import Catalog
from promising.query.column_ranges import ranges
from promising.query.key_rows import Counts, Hashes, Keys, Lists, finished
from promising.query.planner import column_hasher, snapshots_of
from promising.query.preference import exact_counts
from promising.query.sql import parse
from promising.summaries.hashing import hash_keys

LOADED = 1 << 20  # rows of keys looked at together

Marked = tuple[Rows, NDArray[np.float64]]
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
        if any(source.is_view for source in bound.sources):
            raise Unsupported("a continuous query has no files to read: query() reads its view", self.sql, 0)
        snapshots = snapshots_of(bound, [])
        sides = [
            ColdScan(snapshot, ranges(bound, number), used_columns(bound, number))
            for number, snapshot in enumerate(snapshots)
        ]
        expected = cardinality.candidates(bound, snapshots).value
        share, hashes = 1.0, None
        keys = self._keys(snapshots)
        if self.share < 1:
            self._refuse_order()
        if keys is None and self.share < 1:
            off = [
                s.name for s in map(self._summary, range(len(snapshots))) if s is not None and not s.options.postings
            ]
            raise NoSummary(
                f"a share of an answer needs the counts of keys, and the postings of {off[0]} are off: ask for all of"
                " it, or create a summary of the same column with postings = on"
                if off
                else "a share of an answer is counted by keys: join on columns that have summaries, or name one in WITH"
                " PREFERENCE SUMMARY.Estimate.Count(column)",
                self.sql,
                0,
            )
        if keys is not None:
            chosen = self._choose(keys)
            expected, share = chosen.expected, chosen.share
            hashes = chosen.hashes.tolist() if self.share < 1 else None
            ranked = self.share < 1 or self.preference is not None
            for side, known, weights in zip(sides, keys, chosen.weights, strict=True):
                side.mark(_marked(known, chosen.hashes, weights), ranked=ranked)
        rarest = self.preference is not None and self.preference.direction == "ASC"
        attributes = tuple(None if keys is None else a for a in self._attributes())
        if hashes is not None:
            for side, attribute in zip(sides, attributes, strict=True):
                assert attribute is not None
                side.also(attribute)
        scans = [side.scan(source.alias, rarest=rarest) for side, source in zip(sides, bound.sources, strict=True)]
        return ScanPlan(scans, text, hashes, attributes, snapshots[0].stream.seed, expected, share)

    # --- keys ----------------------------------------------------------------------------------------------------

    def _attributes(self) -> tuple[str | None, ...]:
        """The column whose values are keys, on each side."""
        bound = self.bound
        if bound.join is not None:
            return bound.join.attributes
        if self.preference is not None:
            return (self.preference.attribute,)
        return (None if bound.constants is None else bound.constants.attribute,)

    def _summary(self, side: int) -> SummaryIndex | None:
        """The summary of a side's keys."""
        if self.bound.join is not None:
            return self.bound.join.summaries[side]
        attribute = self._attributes()[side]
        return None if attribute is None else best_summary(self.bound.sources[side].stream.summaries, attribute)

    def _keys(self, snapshots: list[Snapshot]) -> "list[_EveryRow] | None":
        """The directories of keys on all sides; None if one side has none."""
        found = []
        for number, (snapshot, attribute) in enumerate(zip(snapshots, self._attributes(), strict=True)):
            summary = self._summary(number)
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

    def _refuse_order(self) -> None:
        """A share consists of whole keys: refuse a preference that ranks anything else."""
        preference = self.preference
        if preference is None:
            return
        if preference.direction == "WEIGHTED":
            raise Unsupported("WEIGHTED draws at random, and has no first share: use DESC or ASC", self.sql, 0)
        if preference.side is not None or preference.fade is not None or preference.measured:
            what = "reads columns" if preference.side is not None else "fades" if preference.fade else "reads measures"
            raise Unsupported(
                f"a share takes whole keys, and a preference that {what} ranks parts of them: rank by"
                " SUMMARY.Estimate.Count of the key alone",
                self.sql,
                0,
            )

    def _priority(self, counts: list[Counts], expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """In which order keys are taken: as the preference says; else the most output first."""
        preference = self.preference
        if preference is None:
            return expected
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


def _marked(keys: _EveryRow, hashes: Hashes, weights: NDArray[np.float64]) -> Iterator[Marked]:
    """The rows of keys, a part at a time, each with the weight of its key."""
    ends = np.cumsum(keys.counts(hashes))
    at = 0
    while at < len(hashes):
        stop = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + LOADED, side="right")))
        lists = finished(keys.load(hashes[at:stop]))
        yield lists.rows, np.repeat(weights[at:stop], lists.counts)
        at = stop
