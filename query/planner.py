"""Chooses operators over snapshots for a bound query."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import compress, islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.index import SummaryIndex
from promising.index.cell_rows import CellRows
from promising.index.cold_regions import ColdRegions
from promising.index.instants import BEGINNING, END
from promising.index.snapshot import Rows, Snapshot, postings_of
from promising.index.summary_index import best_summary
from promising.query.aggregate.certain import Certain
from promising.query.bound import Bound, JoinKey, used_columns
from promising.query.cells import Cells, cells_of, has_cells
from promising.query.column_ranges import ranges
from promising.query.join_cardinality import JoinCardinality
from promising.query.key_rows import Hasher, Hashes, Keys
from promising.query.measured_estimates import MeasuredEstimate
from promising.query.operators.cell_join import CellJoin
from promising.query.operators.edges import Edges
from promising.query.operators.entry_plan import EntryPlan, Side
from promising.query.operators.extremes_first import ExtremesFirst, Ranked
from promising.query.operators.guided import Guided
from promising.query.operators.hash_join import HashJoin
from promising.query.operators.key_limit import KeyLimit
from promising.query.operators.operator import Operator, Pace, Sampler
from promising.query.operators.random_order import Drawing
from promising.query.operators.region_join import RegionJoin, RegionSide
from promising.query.operators.stream_scan import RandomScan, Scan
from promising.query.pipeline import Pipeline
from promising.query.preference import BoundPreference, EstimatedMeasure, exact_counts
from promising.query.result_sinks import Aggregated, Plain, Sorted
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.sketches import Sketched, sketched
from promising.query.spill import Spill
from promising.query.sql import generate
from promising.query.steps import Steps
from promising.summaries.hashing import hash_keys
from promising.summaries.kernels.clock import work_ns

LISTING = 5  # rough nanoseconds to inspect a directory line
CROWDED = 1.5  # pairs per tuple from which a join goes key by key
BRIEF = 1 << 17  # tuples that are read in less time than anything else about a query takes
FOLLOWED, FOLLOWS = 1 << 18, 1 << 16  # tuples that a query adds to the ladder and the extremes, at most, and in a slice
FOLLOWING = 0.25  # of the budget that this may take
WORTH = 4  # cells are used without a budget if they spare one tuple in so many
PROOF, PROOFS = 1 << 15, 1 << 10  # strings looked at while streams are locked, and how often without a budget
BUILDING = 200  # rough nanoseconds to enter a tuple into a directory, and to list and rank its key
ORDERING = 75  # rough nanoseconds, by cold tuple, to read footers and to order their regions
NARROW = 4  # a window with less than one in this many of the stream's tuples is scanned, not looked up


Step = tuple[str | exp.Expression, ...]  # a step of a plan: text, and conditions that are rendered on demand


@dataclass
class Plan:
    """The operators to run; `steps` describe them, outermost first."""

    bound: Bound
    snapshots: list[Snapshot]
    worker: Operator
    sampler: Sampler | None
    result: Plain | Sorted | Aggregated
    pipeline: Pipeline
    steps: list[Step]
    joined: JoinCardinality | None  # of two streams
    warnings: list[str] = field(default_factory=list)
    cells: Cells | None = None  # what the worker need not read
    sketched: Sketched | None = None  # the answer; then there is nothing to read
    brief: bool = False  # whether the work is so little that it is done whatever the budget

    @property
    def answered(self) -> int:
        """Tuples that cells or sketches answer for."""
        if self.sketched is not None:
            return self.sketched.tuples
        return 0 if self.cells is None else self.cells.tuples

    @property
    def exact(self) -> bool:
        """Whether the answer is, once all is read."""
        return self.sketched is None or self.sketched.found.exact

    def words(self) -> list[str]:
        """The steps as text. Conditions are rendered here, because only EXPLAIN needs it."""
        return ["".join(part if isinstance(part, str) else generate(part) for part in step) for step in self.steps]


def planning(
    bound: Bound,
    pace: Pace,
    budget: int | None,
    seed: int,
    spill: Spill | None = None,
    clock: Callable[[], int] = work_ns,
) -> Steps[Plan]:
    """Take snapshots and choose operators, in steps. `budget`, CPU time in nanoseconds, decides what is tried first.

    spill: for sorts and groups; without it they stay in memory. clock: CPU time of the calling thread.
    """
    return (yield from _Planner(bound, pace, budget, seed, spill, clock).plan())


def _chosen(summary: SummaryIndex) -> str:
    """The suffix that describes an automatically chosen structure, and whether adaptive zones follow the stream."""
    words = ("" if summary.auto is None else summary.structure_text, summary.cutting)
    return "".join(f", {part}" for part in words if part)


def _unused(summary: SummaryIndex) -> str:
    """Why a query does not use the postings of a summary."""
    if summary.structure == "none":
        return f"no structure{_chosen(summary)}"
    return "the window is narrow" if summary.options.postings else f"postings of {summary.name} are off"


class _Planner:
    def __init__(
        self,
        bound: Bound,
        pace: Pace,
        budget: int | None,
        seed: int,
        spill: Spill | None,
        clock: Callable[[], int] = work_ns,
    ) -> None:
        self.bound = bound
        self.clock = clock
        self.pace = pace
        self.budget = budget
        self.spill = spill
        self.seed = int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little")
        self.steps: list[Step] = []
        self.cells: Cells | None = None
        self.sketched: Sketched | None = None
        self.certain: Certain | None = None
        self.brief = False

    def plan(self) -> Steps[Plan]:
        bound = self.bound
        warnings = list(bound.warnings)
        yield from self._take(warnings)
        if (yield from self._told_apart()):
            bound = self.bound = _without_key(bound)
        for source in bound.sources:
            warnings += [f"stream {source.stream.name!r} is not whole: {lost}" for lost in source.stream.damages]
        pipeline = Pipeline(bound, self.snapshots)
        result: Plain | Sorted | Aggregated
        if bound.grouped:
            result = Aggregated(bound, pipeline, self.spill)
            by = f" by {len(bound.group_keys)} keys" if bound.group_keys else ""
            self._tell("aggregate " + ", ".join(a.function for a in bound.aggregates) + by)
        elif bound.order:
            result = Sorted(bound, pipeline, self.spill)
            self._tell("sort" + (f", the first {bound.limit}" if bound.limit is not None else ""))
        else:
            result = Plain(bound, pipeline)
            self._tell("rows" + (f", {bound.limit} at most" if bound.limit is not None else ""))
        if bound.limit_by is not None:
            columns = (part for term in bound.limit_by.terms for part in (", ", term))
            self._tell(f"at most {bound.limit_by.most} of each ", *islice(columns, 1, None))
        if bound.conditions:
            first, *more = bound.conditions
            self._tell("keep where ", first, *(part for c in more for part in (" and ", c)))
        self.joined = None if bound.join is None else self._joined(bound.join)
        sampler, worker = self._operators()
        if isinstance(result, Plain) and isinstance(worker, Guided):
            result.by_key = worker.limit = self._key_limit(worker.plan.sides)
        if isinstance(result, Aggregated):
            result.certain = self.certain
            result.sketched = None if self.sketched is None else self.sketched.found
            if self.cells is not None and self.cells.answered:
                result.absorb(self.cells)
        return Plan(
            bound,
            self.snapshots,
            worker,
            sampler,
            result,
            pipeline,
            self.steps,
            self.joined,
            warnings,
            self.cells,
            self.sketched,
            self.brief,
        )

    def _take(self, warnings: list[str]) -> Steps[None]:
        """Take the snapshots, and what cells say of them."""
        if not has_cells(self.bound):
            self.snapshots = snapshots_of(self.bound, warnings)
            return
        stream = self.bound.sources[0].stream
        left = math.inf if self.budget is None else self.budget * FOLLOWING
        more = stream.catch_up(FOLLOWS)
        for _ in range(FOLLOWED // FOLLOWS - 2):
            if not more or left <= 0:
                break
            yield
            began = self.clock()
            more = stream.catch_up(FOLLOWS)
            left -= self.clock() - began
        with stream.reading():
            if left > 0:
                stream.catch_up(FOLLOWS)  # so that nothing is missing that arrived meanwhile
            self.snapshots = snapshots_of(self.bound, warnings)
            self.sketched = sketched(self.bound, self.snapshots[0])
            if self.sketched is None:
                self.cells = cells_of(self.bound, self.snapshots[0])

    def _nothing(self, known: Sketched) -> Edges:
        """Sketches have answered."""
        where = "the window" if known.buckets is None else "a bucket of time"
        of = "" if known.buckets is None else f" in {known.buckets:,} buckets of time"
        self._tell(f"from sketches: {known.tuples - known.read:,} tuples, by {known.zones:,} zones{of}")
        if known.read:
            self._tell(f"from tuples: {known.read:,} that are in no sealed zone of {where}")
        self.brief = True
        snapshot = self.snapshots[0]
        none = np.empty(0, np.int64)
        edges = Edges(snapshot, self.pace, snapshot.until, none, none, known.tuples)
        edges.read = known.read
        return edges

    def _edges(self) -> Edges | None:
        """The operator that reads what cells leave, if that is worth it."""
        cells, snapshot = self.cells, self.snapshots[0]
        if cells is None:
            return None
        edges = Edges(snapshot, self.pace, cells.until, cells.starts, cells.ends, cells.tuples)
        brief = edges.candidates <= BRIEF
        free = self.budget is None and self.bound.target is None
        if (brief and cells.answered) or (free and edges.candidates * WORTH <= snapshot.size * (WORTH - 1)):
            self.brief = brief
            return edges
        self.cells = None
        return None

    def _tell_edges(self, cells: Cells, edges: Edges) -> None:
        if cells.answered:
            self._tell(f"from cells: {cells.tuples:,} tuples, by {cells.answered:,} spans of the calendar")
        for name, (spans, tuples) in cells.pruned.items():
            self._tell(f"pruned by {name}: {tuples:,} tuples of {spans:,} spans")
        if edges.candidates:
            self._tell(f"from tuples: read {self._name(0)} in order of arrival, at most {edges.candidates:,}")

    def _told_apart(self) -> Steps[bool]:
        """In steps: whether the join is on strings whose hashes are equal only if they are, so that no pair need be
        compared.
        """
        join = self.bound.join
        if join is None or join.values[0].kind != "string" or None in join.attributes:
            return False
        left, right = self.snapshots
        names = sorted({s.stream.name: s.stream for s in self.snapshots}.items())
        found: bool | None = None
        for _ in range(PROOFS if self.budget is None else 1):
            with ExitStack() as held:
                for _, stream in names:
                    held.enter_context(stream.reading())
                found = left.told_apart(str(join.attributes[0]), right, str(join.attributes[1]), PROOF)
            if found is not None:
                break
            yield
        return bool(found)

    def _joined(self, key: JoinKey) -> JoinCardinality:
        hashers = [self._hasher(side, key.attributes[side]) for side in range(2)]
        return JoinCardinality(self.bound, self.snapshots, hashers, self._restricted(), self.budget, self.seed)

    def _restricted(self) -> Hashes | None:
        """Hashes of the only keys that can be in the answer."""
        if self.bound.constants is None:
            return None
        return hash_keys(self.bound.constants.values, self.snapshots[0].stream.seed).view(np.int64)

    def _tell(self, *step: str | exp.Expression) -> None:
        self.steps.append(step)

    # --- operators -----------------------------------------------------------------------------------------------

    def _operators(self) -> tuple[Sampler | None, Operator]:
        bound, preference = self.bound, self.bound.preference
        if self.sketched is not None:
            return None, self._nothing(self.sketched)
        edges = self._edges()
        if edges is not None and self.cells is not None:
            if preference is not None:
                self._tell("the preference changes nothing: an aggregate from cells needs no order")
            self._tell_edges(self.cells, edges)
            return None, edges
        if not bound.grouped:
            return None, self._worker(preference)
        if self.budget is None and bound.target is None:
            if preference is not None:
                self._tell("the preference changes nothing: an aggregate without a budget needs no order")
            return None, self._worker(None)
        ordered = None if preference is None else self._ordering(preference)
        if bound.join is None and bound.constants is None:
            return self._sampled()
        worker = self._promising(ordered)
        self._tell("a random sample first, then every entry")
        return Drawing(worker, self.seed, self.pace, weighted=False), worker

    def _sampled(self) -> tuple[Sampler | None, Operator]:
        """A random sample, then every tuple; extreme tuples of what is added up first, where the stream lists them."""
        snapshot, names = self.snapshots[0], self._added_up()
        with snapshot.stream.reading():
            extremes = snapshot.stream.extremes
            if extremes is not None and extremes.until < snapshot.until:  # a tuple that cannot be read stopped them
                extremes = None
            names = [] if extremes is None else [name for name in names if name in extremes.columns]
            ranked = None if extremes is None or not names else Ranked(snapshot, extremes, names)
        if ranked is not None and not ranked.certain:
            self._tell("no sample: too many values are NaN or infinite")
            return None, self._worker(None)
        if ranked is None:
            self._tell("from tuples: a random sample first, then every tuple")
            return RandomScan(snapshot, self.pace, self.seed), self._worker(None)
        greatest = ", ".join(f"|{name}|" for name in names)
        self._tell(f"from tuples: the greatest {greatest} first, a random sample of the rest, then every tuple")
        sampler = ExtremesFirst(snapshot, self.pace, self.seed, ranked)
        self.certain = Certain(self.bound.aggregates, ranked.squares, ranked.beyond)
        return sampler, Scan(snapshot, self.pace, sampler.taken)

    def _added_up(self) -> list[str]:
        """The columns that sums and averages read."""
        pairs = zip(self.bound.aggregates, self.bound.arguments, strict=True)
        added = [argument for a, argument in pairs if a.function in ("sum", "avg") and argument is not None]
        return sorted({i.name for argument in added for i in argument.inputs})

    def _ordering(self, preference: BoundPreference) -> BoundPreference | None:
        """The preference as far as it orders an aggregate: between the keys of a join, which are listed anyway.

        To list tuples, or the keys of one stream, and then to read by them, costs more than to read every tuple.
        """
        if self.bound.join is None or preference.side is not None or preference.direction == "WEIGHTED":
            self._tell(
                "the preference changes nothing: a random sample is read first, and no order of the rest saves time"
            )
            return None
        return dataclasses.replace(preference, fade=None)

    def _worker(self, preference: BoundPreference | None) -> Operator:
        bound = self.bound
        if preference is None:
            if bound.constants is not None:
                return self._promising(None)
            if bound.join is not None:
                return self._hash_join(bound.join)
            unaided = bound.unaided
            if unaided is not None:
                unaided.queried(self.snapshots[0].size, self.budget)
            chosen = "" if unaided is None or unaided.auto is None else unaided.structure_text
            why = f" (summary {unaided.name} is {chosen})" if unaided is not None and chosen else ""
            self._tell(f"from tuples: read {self._name(0)} in order of arrival{why}")
            return Scan(self.snapshots[0], self.pace)
        if preference.direction != "WEIGHTED":
            return self._regions(preference) or self._hurried(preference) or self._promising(preference)
        if (
            bound.join is None
            and preference.counts_only
            and preference.side is None
            and preference.fade is None
            and bound.constants is None
        ):
            self._tell(f"from tuples: read {self._name(0)} in random order: each tuple is as likely as any other")
            return RandomScan(self.snapshots[0], self.pace, self.seed)
        promising = self._promising(preference)
        self._tell("entries are drawn at random, with chances in proportion to their priority")
        return Drawing(promising, self.seed, self.pace, weighted=True)

    def _hash_join(self, key: JoinKey) -> Operator:
        if (cells := self._by_cells(None)) is not None:
            return cells
        hashers = [self._hasher(side, key.attributes[side]) for side in range(2)]
        found = [self._found(side, key.summaries[side], hashers[side], narrow=True) for side in range(2)]
        sizes = [s.size for s in self.snapshots]
        known = [side for side in range(2) if found[side] is not None]
        looked_up = max(known or range(2), key=lambda s: sizes[s] if known else -sizes[s])
        keys = found[looked_up]
        probe = 1 - looked_up
        if len(known) == 2 and all(k is not None and k.exact for k in found):
            assert self.joined is not None
            if self.joined.pairs().value > CROWDED * min(
                sizes
            ):  # then each key's tuples are read once, not once per partner
                return self._promising(None)
        if keys is not None:
            summary = key.summaries[looked_up]
            assert summary is not None  # found by it
            how = f"from postings of summary {summary.name}{_chosen(summary)}"
            self._tell("join on ", key.condition, f": read {self._name(probe)}, look up {self._name(looked_up)} {how}")
        else:
            why = self._why(key, looked_up)
            order = f"from tuples: build on {self._name(looked_up)}, read {self._name(probe)}"
            self._tell("plain hash join on ", key.condition, f" ({why}): {order}")
        return HashJoin(self.snapshots, probe, hashers, keys, self.pace)

    def _why(self, key: JoinKey, side: int) -> str:
        summary = key.summaries[side]
        if summary is None:
            return f"no summary on {key.attributes[side] or 'the expression'} of {self._name(side)}"
        return _unused(summary)

    def _by_cells(self, preference: BoundPreference | None) -> CellJoin | None:
        """The operator that reads bucket by bucket, where no side has postings and its cells are all that is needed."""
        numbers = range(len(self.snapshots))
        keyed = [self._keyed(number, preference) for number in numbers]
        join = self.bound.join
        kinds = set() if join is None else {value.kind for value in join.values}
        if self.bound.constants is not None or len(kinds) > 1 or not kinds <= {"int", "string"}:
            return None
        sides = [
            CellRows(summary, snapshot)
            for (_, summary), snapshot in zip(keyed, self.snapshots, strict=True)
            if summary is not None and not summary.options.postings
        ]
        attributes = [attribute for attribute, _ in keyed if attribute is not None]
        if not len(sides) == len(attributes) == len(numbers) or len({side.sizes.buckets for side in sides}) > 1:
            return None
        if not all(side.usable for side in sides):
            return None
        names = " and ".join(sorted({side.summary.name for side in sides}))
        what: Step = ("select",) if join is None else ("join on ", join.condition)
        order = "" if preference is None else ", most output a tuple first, by counters; in a bucket, best keys first"
        self._tell(*what, f": from cells and filters of {names}, bucket by bucket{order}")
        return CellJoin(sides, attributes, preference, self.pace)

    def _hurried(self, preference: BoundPreference) -> CellJoin | None:
        """Buckets in the order of their promise, where building directories takes too much of the budget.

        A LIMIT wants the best keys, not the best buckets.
        """
        bound = self.bound
        keys = {(number, self._keyed(number, preference)[0]) for number in range(len(self.snapshots))}
        if (
            self.budget is None
            or preference.direction != "DESC"
            or preference.side is not None
            or preference.fade is not None
            or preference.measured
            or bound.limit is not None
            or bound.limit_by is not None
            or not {(e.side, e.attribute) for e in preference.estimates} <= keys
            or sum(snapshot.size for snapshot in self.snapshots) * BUILDING <= self.budget / 2
        ):
            return None
        return self._by_cells(preference)

    def _regions(self, preference: BoundPreference) -> Operator | None:
        """A join by regions, if that brings more for a budget: most tuples are cold, and output is what is preferred.

        A LIMIT wants the best keys, not the most output.
        """
        bound, join = self.bound, self.bound.join
        if join is None or preference.direction != "DESC" or not preference.counts_only or None in join.attributes:
            return None
        if {(e.side, e.attribute) for e in preference.estimates} != set(enumerate(join.attributes)):
            return None
        if self.budget is None or bound.limit is not None or bound.limit_by is not None or preference.fade is not None:
            return None
        cold = sum(snapshot.cold for snapshot in self.snapshots)
        if 2 * cold < sum(snapshot.size for snapshot in self.snapshots) or cold * ORDERING > self.budget / 8:
            return None
        sides = []
        for number, (snapshot, attribute) in enumerate(zip(self.snapshots, join.attributes, strict=True)):
            assert attribute is not None
            regions = ColdRegions(snapshot, attribute, used_columns(bound, number), ranges(bound, number))
            sides.append(RegionSide.of(regions, self._hasher(number, attribute)))
        self._tell("join on ", join.condition, ": regions of cold tuples, most output a byte first")
        return RegionJoin(sides, self.pace)

    def _promising(self, preference: BoundPreference | None) -> Guided:
        bound = self.bound
        # Only DESC over keys tolerates counts that are too high: it recounts before processing an entry. A sample drawn
        # before that needs exact counts.
        exact = bound.grouped or preference is None or preference.direction != "DESC" or preference.side is not None
        sides = []
        for number, snapshot in enumerate(self.snapshots):
            attribute, summary = self._keyed(number, preference)
            narrow = preference is not None or bound.constants is None
            hasher = self._hasher(number, attribute)
            keys = self._found(
                number,
                summary,
                hasher,
                narrow=narrow,
                exact=exact and (bound.constants is None or preference is not None),
            )
            sides.append(Side(snapshot, hasher, attribute, summary, keys))
        restrict = None
        if bound.constants is not None and (bound.join is not None or bound.constants.attribute == sides[0].attribute):
            restrict = self._restricted()
            self._tell("only keys with ", bound.constants.condition)
            for side in sides:
                cells = None if side.keys is not None or side.summary is None else CellRows(side.summary, side.snapshot)
                if cells is not None and cells.covering:
                    side.cells, side.only = cells, restrict
        self._say(preference, sides)
        lines = min((s.keys.postings.lines for s in sides if s.keys is not None), default=0)
        hurry = bool(
            self.budget
            and preference is not None
            and preference.direction == "DESC"
            and preference.side is None
            and not bound.grouped
            and all(s.keys is not None for s in sides)
            and lines * LISTING > self.budget / 2
        )
        measured = [self._measured(asked) for asked in preference.measured] if preference is not None else []
        value_of, extra = self._value_of(preference, sides, measured)
        plan = EntryPlan(sides, preference, restrict=restrict, value_of=value_of, extra=extra, measured=measured)
        return Guided(plan, self.pace, hurry=hurry)

    def _key_limit(self, sides: list[Side]) -> KeyLimit | None:
        """LIMIT n BY, if it is by the integer key of the entries."""
        by, join = self.bound.limit_by, self.bound.join
        found = by.columns[0].column if by is not None and len(by.columns) == 1 else None
        if by is None or found is None or found.kind != "int" or sides[found.source].attribute != found.name:
            return None
        if join is not None and join.values[0].kind != join.values[1].kind:  # then keys are compared as floats
            return None
        self._tell("a key ends when it has had its rows")
        side, every = sides[found.source], not self.bound.predicates
        return KeyLimit(found.source, side.snapshot, side.hasher, by.most, every=every)

    def _say(self, preference: BoundPreference | None, sides: list[Side]) -> None:
        what: Step = ("select",) if self.bound.join is None else ("join on ", self.bound.join.condition)
        if preference is None:
            self._tell(*what, ", key by key")
        else:
            of = "keys" if preference.side is None else f"tuples of {self._name(preference.side)}"
            order = {"DESC": "most promising first", "ASC": "rarest first", "WEIGHTED": "weighted"}[
                preference.direction
            ]
            fade = "" if preference.fade is None else f", {preference.fade}"
            self._tell(*what, f": {of}, {order}{fade}")
        for number, side in enumerate(sides):
            if side.cells is not None:
                how = f"cells and filters of summary {side.cells.summary.name}"
            elif side.keys is None:
                why = "no summary" if side.summary is None else _unused(side.summary)
                how = f"tuples, in a directory built for this query ({why})"
            else:
                how = (
                    "tuples, in a directory"
                    if side.summary is None
                    else f"postings of summary {side.summary.name}{_chosen(side.summary)}"
                )
            self._tell(f"keys of {self._name(number)}.{side.attribute or '(expression)'} from {how}")

    def _keyed(self, side: int, preference: BoundPreference | None) -> tuple[str | None, SummaryIndex | None]:
        bound = self.bound
        if bound.join is not None:
            return bound.join.attributes[side], bound.join.summaries[side]
        if preference is not None:
            assert preference.attribute is not None
            attribute = preference.attribute
        else:
            assert bound.constants is not None
            attribute = bound.constants.attribute
        return attribute, best_summary(bound.sources[0].stream.summaries, attribute)

    def _measured(self, asked: EstimatedMeasure) -> MeasuredEstimate:
        snapshot = self.snapshots[asked.side]
        return MeasuredEstimate(asked, (snapshot.start, snapshot.end))

    def _found(
        self, side: int, summary: SummaryIndex | None, hasher: Hasher, *, narrow: bool, exact: bool = False
    ) -> Keys | None:
        """The keys of a summary, if that is cheaper than scanning the window."""
        snapshot = self.snapshots[side]
        if summary is None or (
            not snapshot.everything and (exact or (narrow and snapshot.size * NARROW < snapshot.kept))
        ):
            return None
        summary.queried(snapshot.size, self.budget)
        postings = postings_of(summary)
        if postings is None:
            return None
        return Keys(snapshot, hasher, postings, exact=snapshot.everything, summary=summary)

    def _value_of(
        self, preference: BoundPreference | None, sides: list[Side], measured: list[MeasuredEstimate]
    ) -> tuple[Callable[[Rows], NDArray[np.float64]] | None, list[Side]]:
        """The function that values tuples, and the additional directories it needs."""
        if preference is None or preference.side is None:
            return None, []
        me = preference.side
        known: dict[tuple[int, str | None], Side] = {(i, s.attribute): s for i, s in enumerate(sides)}
        extra = []
        for estimated in preference.estimates:
            if (estimated.side, estimated.attribute) not in known:
                summary = best_summary(self.bound.sources[estimated.side].stream.summaries, estimated.attribute)
                snapshot = self.snapshots[estimated.side]
                hasher = column_hasher(snapshot, estimated.attribute)
                keys = self._found(estimated.side, summary, hasher, narrow=False, exact=True)
                made = Side(snapshot, hasher, estimated.attribute, summary, keys)
                known[estimated.side, estimated.attribute] = made
                extra.append(made)
        columns = sorted({i for f in preference.factors for i in f.inputs if i.source >= 0}, key=lambda i: i.name)
        snapshot = self.snapshots[me]

        def value_of(rows: Rows) -> NDArray[np.float64]:
            counts: dict[tuple[int, str | None], NDArray[np.int64]] = {}
            for place, side in known.items():
                with snapshot.holding():
                    hashes, _ = (side if place[0] == me else sides[me]).hasher(rows)
                assert side.keys is not None
                counts[place] = side.keys.counts(hashes)
            with snapshot.holding():
                given: dict[Input, pa.Array] = {i: snapshot.column(i.name, rows) for i in columns}
                hashes, _ = sides[me].hasher(rows)
                for estimate in measured:
                    frequency = estimate.asked.what == "FREQUENCY"
                    given[estimate.input] = estimate.of(
                        hashes, snapshot.column(estimate.asked.column, rows) if frequency else None
                    )
            return preference.value(given | exact_counts(preference.estimates, counts), len(rows))

        return value_of, extra

    # --- keys ----------------------------------------------------------------------------------------------------

    def _hasher(self, side: int, attribute: str | None) -> Hasher:
        snapshot, join = self.snapshots[side], self.bound.join
        kinds = set() if join is None else {v.kind for v in join.values}
        if join is None or (attribute is not None and len(kinds) == 1 and kinds <= {"int", "string"}):
            assert attribute is not None
            return column_hasher(snapshot, attribute)
        return value_hasher(snapshot, join.values[side], as_float=len(kinds) > 1)

    def _name(self, side: int) -> str:
        return self.bound.sources[side].alias


def _without_key(bound: Bound) -> Bound:
    """Without the condition that a join on its key fulfils."""
    assert bound.join is not None
    key = bound.join.condition
    kept = [c.unnest() is not key for c in bound.conditions]
    return dataclasses.replace(
        bound,
        predicates=list(compress(bound.predicates, kept)),
        conditions=list(compress(bound.conditions, kept)),
    )


def column_hasher(snapshot: Snapshot, attribute: str) -> Hasher:
    """Hashes of a column, the same as in its summaries."""

    def hasher(rows: Rows) -> tuple[Hashes, NDArray[np.bool_] | None]:
        return snapshot.hashes(attribute, rows), snapshot.nulls(attribute, rows)

    return hasher


def value_hasher(snapshot: Snapshot, value: Compiled, *, as_float: bool) -> Hasher:
    """Hashes of an expression: equal for equal values, and collision-free within a type, except for strings."""
    seed = snapshot.stream.seed

    def hasher(rows: Rows) -> tuple[Hashes, NDArray[np.bool_] | None]:
        columns = {i: snapshot.column(i.name, rows) for i in value.inputs}
        made = value.evaluate(columns, len(rows))
        missing = made.is_null().to_numpy(zero_copy_only=False) if made.null_count else None
        if value.kind == "string":
            return hash_keys(made.fill_null(""), seed).view(np.int64), missing
        if value.kind == "float" or as_float:
            numbers = (
                made.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
            )  # -0.0 is 0.0
            words = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        else:
            whole = made.cast(pa.int8()).cast(pa.int64()) if value.kind == "bool" else made.view(pa.int64())
            words = whole.fill_null(0).to_numpy(zero_copy_only=False)
        return hash_keys(np.ascontiguousarray(words), seed).view(np.int64), missing

    return hasher


def snapshots_of(bound: Bound, warnings: list[str]) -> list[Snapshot]:
    """Snapshots of all streams at one instant: the window reaches back from the latest time of any of them.

    Tuples ahead of that time belong to every window.
    """
    streams = {s.stream.name: s.stream for s in bound.sources}
    with ExitStack() as held:
        for name in sorted(streams):
            held.enter_context(streams[name].reading())
        now = max((s.time for s in streams.values() if s.time is not None), default=None)
        end = END if now is None else max(now, *(now if s.latest is None else s.latest for s in streams.values())) + 1
        start = BEGINNING if bound.window is None or now is None else now + 1 - bound.window
        out = []
        for number, source in enumerate(bound.sources):
            summary = bound.join.summaries[number] if bound.join is not None else None
            if bound.join is None and bound.preference is not None:
                summary = best_summary(source.stream.summaries, bound.preference.attribute or "")
            if summary is None:
                known = list(source.stream.summaries.values())
                summary = max(known, key=lambda s: (s.reach, s.name), default=None)
            out.append(Snapshot(source.stream, start, end, summary, now=now))
            oldest = source.stream.oldest
            if bound.window is not None and now is not None and oldest is not None and oldest > start:
                covered = (now + 1 - oldest) / 1e6
                warnings.append(
                    f"WINDOW reaches back {bound.window / 1e6:g} s; {source.stream.name} keeps tuples of the last"
                    f" {covered:g} s, and the answer covers those"
                )
        return out
