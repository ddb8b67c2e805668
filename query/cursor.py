"""Runs a plan in slices within a CPU budget, emits frames, and can be suspended and resumed."""

import math
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import LimitReached, PromisingError, StorageError
from promising.query import cardinality
from promising.query.aggregate.aggregates import APPROXIMATE
from promising.query.aggregate.estimators import Estimated
from promising.query.answers import Cut, Frame, Progress
from promising.query.bound import Bound
from promising.query.join_cardinality import JoinCardinality
from promising.query.operators.guided import Guided
from promising.query.operators.operator import Guess
from promising.query.planner import Plan, planning
from promising.query.query_memory import Account
from promising.query.result_sinks import Aggregated, Plain, Shown, Sorted, no_rows, schema
from promising.query.spill import Spill

Clock = Callable[[], int]  # CPU time of the calling thread, in nanoseconds

MS = 1_000_000
SLICE, LONG_SLICE = 1 * MS, 5 * MS  # target duration of a slice: with a budget, and without
LEAST, MOST = 256, 1 << 17  # candidates per slice
ROWS, LARGE = 1 << 16, 1 << 23  # pending rows, and bytes of them, that trigger a frame
PLANNED = 1 << 17  # bytes of a statement, its plan and its call
ENCODED = 1 << 18  # bytes of a frame that are encoded at a time
GLANCE = 5 * MS  # CPU time after which a frame is due if there are new rows, or if it is the first
PATIENCE = 50 * MS  # CPU time after which a frame is due, even without rows
FIRST_LOOK = 2048  # draws before the first estimate
CLOSING = 500  # rough nanoseconds per group and aggregate in the last frame
SORTING = 120  # and per value that an aggregate retains
EXPRESSION = 25_000  # rough nanoseconds for an expression in a slice, however few its candidates
FRAMED = 2_000  # and for a column of a frame of rows, however few
ESTIMATE = 50_000  # and in the last frame of groups, however few
CONTENTION = 2  # other threads may take the processor while a frame is assembled
SENDING = 10  # rough nanoseconds to send a byte
HOLDING = ("median", "quantile", "count_distinct", *APPROXIMATE)
FEWEST = 30  # sampled rows of a group before its error estimate is trusted
KNOWN = 2.0  # upper / lower up to which the size of a join is reported as a number
SAMPLED = 16  # sampling ends when one in this many candidates is drawn


BOUND: Iterator[None] = iter(())  # nothing is left to bind


class _Pace:
    """Candidates per slice. Operators reference it, not the cursor: no cycle, so a finished query is freed at once."""

    def __init__(self) -> None:
        self.slice = LEAST
        self.ahead = MOST  # candidates until the next estimate
        self.fits = MOST  # candidates whose rows fit in what a slice may add to memory

    def __call__(self) -> int:
        return max(min(self.slice, self.ahead, self.fits), 1)


class Cursor:
    """A running query, used by one thread at a time. `spent` is its CPU time in nanoseconds.

    unbound: the rest of the binding, if the budget was spent before; it is the first of the work.
    """

    def __init__(
        self,
        bound: Bound,
        clock: Clock,
        budget: int | None,
        seed: int,
        spent: int = 0,
        unbound: Iterator[None] = BOUND,
        *,
        account: Account | None = None,
        spill: Spill | None = None,
    ) -> None:
        self.bound = bound
        self.account = account
        self.clock = clock
        self.spent = spent
        self.finished = False
        self._pace = _Pace()
        began = clock()
        self._plan: Plan | None = None
        self._unbound = unbound
        self._asked = (budget, seed, spill)
        self._suspended = False  # an answer was suspended with it
        self._framed = 0  # bytes of a frame of fresh rows
        self._least = 0  # nanoseconds of the last step of the shortest slices
        self._slice, self._allowed = 0, LEAST  # candidates of the last slice, and how many were allowed
        self._whole = self._first = self._after = 0  # nanoseconds of it, of its first step, and of those after
        self._matched = 0  # candidates that met the conditions
        self._certain = 0  # those of them that the sampler read for certain
        self._held = 0  # candidates of the slice that is at work
        self._hits = 0  # sampled candidates that did
        self._sizes: Guess | None = None
        self._limit: int | None = None
        self._excused = 0  # nanoseconds that the last frame may take beyond it
        self._left: Callable[[], float] = lambda: math.inf
        self._mark = began
        self._looking = 0.0  # nanoseconds per draw to compute an estimate
        self._look: Estimated | None = None  # estimates not yet emitted
        self._reached = False  # the error target
        self._spills = spill is not None
        self._large = LARGE if account is None else min(LARGE, account.frame)
        self._counted = 0  # candidates when the bytes in memory were last counted
        self._steps = self._run()
        self._planning = self._plans()
        if unbound is BOUND:
            next(self._planning, None)  # a plan that takes longer is the first of the work, too
        self.spent += clock() - began

    @property
    def nbytes(self) -> int:
        if self._plan is None:
            return len(self.bound.scope.sql)
        sampler = self.plan.sampler
        work = self.plan.worker.nbytes + self.plan.result.nbytes
        return PLANNED + work + (0 if sampler is None else sampler.nbytes)

    def close(self) -> None:
        """Release its files and its share of memory. Idempotent; not while it runs."""
        self._steps.close()
        if self._plan is not None:
            self._plan.result.close()
        if self.account is not None:
            self.account.close()

    # --- the work ------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        assert self._plan is not None
        return self._plan

    def prepare(self) -> Iterator[None]:
        """Bind what is not yet bound, and plan."""
        yield from self._planning

    def _plans(self) -> Iterator[None]:
        yield from self._unbound
        self._plan = yield from planning(self.bound, self._pace, *self._asked, self.clock)
        self._matched = self._plan.answered
        self.bound = self._plan.bound
        self._reached = self.bound.target is not None and not self._plan.exact

    def _run(self) -> Generator[None, None, None]:
        """All work; yields after each slice."""
        if self._plan is None:
            yield from self.prepare()
            yield
        result = self.plan.result
        if self._full():
            return
        if self.plan.sampler is not None and isinstance(result, Aggregated):
            yield from self._sample(result)
            self._pace.ahead = MOST
            if self._reached:
                return
        for batch in self.plan.worker.work():
            if batch is not None:
                self._held = len(batch)
                self._matched += yield from result.add(batch)
                self._held = 0
            yield
            if self._full():
                return
            yield from self._within()
        for _ in result.finish():
            yield
            if result.spilled:
                yield from self._within()

    def _within(self) -> Iterator[None]:
        """Count the bytes in memory. Spills where they are many; raises LimitReached where that is not enough."""
        if self.account is None:
            return
        done, self._counted = self.plan.worker.done - self._counted, self.plan.worker.done
        grown = self.nbytes - self.account.size
        if done > 0 and grown > 0:
            self._pace.fits = max(LEAST, int(done * self.account.step / grown))
        for _ in self.plan.result.relieve(pressed=self.account.hold(self.nbytes)):
            yield
        self.account.hold(self.nbytes)
        self.account.check(spills=self._spills)

    def _full(self) -> bool:
        return self.plan.result.full

    def _sample(self, result: Aggregated) -> Generator[None, None, None]:
        """Draw until the error target is reached, or until reading everything costs little more."""
        sampler = self.plan.sampler
        assert sampler is not None
        target = self.bound.target
        look = self._pace.ahead = FIRST_LOOK
        for batch in sampler.work():
            if batch is not None:
                if batch.certain:
                    certain = result.add_certain(batch)
                    self._matched += certain
                    self._certain += certain
                else:
                    self._hits += result.add_sample(batch)
            self._pace.ahead = look - sampler.done
            yield
            if self.account is not None and self.account.hold(self.nbytes):
                return
            if sampler.done < look:
                continue
            reserve = self._reserve()
            if (self._limit is not None and self.spent + 3 * reserve >= self._limit) or self._late(3 * reserve):
                look, self._pace.ahead = sys.maxsize, MOST  # the last frame makes the estimate
                continue
            began = self.clock()
            found = self._estimated()
            self._looking = (self.clock() - began) / sampler.done
            self._look = found
            factor = 2.0
            if target is not None:
                worst = _worst(found)
                if worst <= target.error:
                    self._reached = True
                    return
                wanted = 1.1 * (worst / target.error) ** 2  # the error falls with the square root of the draws
                factor = min(max(wanted, 1.25), 16.0)
            left = sampler.remaining()
            most = sys.maxsize if left is None else int((left.upper + sampler.done) / SAMPLED) + 1
            if sampler.done >= most:
                return
            look = min(sampler.planned(factor), most)
            self._pace.ahead = look - sampler.done
            yield

    def _estimated(self) -> Estimated:
        result = self.plan.result
        assert isinstance(result, Aggregated)
        confidence = 0.95 if self.bound.target is None else self.bound.target.confidence
        worker, sampler = self.plan.worker, self.plan.sampler
        left = 0.0
        if not self.finished and (sampler is None or sampler.remaining() is None):  # nothing drawn yet
            rest = self._remaining() or self.sizes
            left = max(rest.upper, 1.0)
        found = result.estimated(sampler, worker, left, confidence)
        if not found.exact and not worker.done and (sampler is None or not sampler.done) and not self.bound.group_keys:
            self._foretell(found)
        return found

    def _foretell(self, found: Estimated) -> None:
        """Before any tuple is read: the count that the summaries predict."""
        joined = self.plan.joined
        expected = cardinality.answer_rows(self.bound, self.sizes) if joined is None else joined.rows()
        value, lower, upper = (round(x) for x in expected)
        for number, aggregate in enumerate(self.bound.aggregates):
            if aggregate.function == "count" and aggregate.kind is None:
                for bounds, told in ((found.value, value), (found.lower, lower), (found.upper, upper)):
                    bounds[number] = pa.array([told], pa.int64())

    # --- frames --------------------------------------------------------------------------------------------------

    def run(
        self,
        budget: int | None,
        stop: threading.Event,
        keep: Callable[["Cursor"], str | None] | None = None,
        left: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[Frame | None]:
        """Work for `budget` nanoseconds of CPU time. `keep` stores a cursor with work left and returns its token.

        None after each `GLANCE` without a frame: other queries may have their turn.

        left: seconds until the last frame is due. One that would take longer is left for later, with its rows.
        """
        limit = self._limit = None if budget is None else self.spent + budget
        self._excused = 0 if budget is None else max(GLANCE, budget // 20)
        told = turned = self.spent
        first = True
        self._left = left
        resumed = self._suspended
        cut: Cut | None = None
        problem: PromisingError | None = None
        self._mark = self.clock()
        while not self.finished:
            self._meter()
            if stop.is_set():
                cut = "cancelled"
                break
            ahead = 0 if resumed else self._ahead()  # a resumed query always goes on
            if limit is not None and not self._brief and self.spent + ahead >= limit:
                cut = "budget"
                break
            resumed = False
            try:
                if self._step(limit):
                    break
            except (LimitReached, StorageError) as found:
                problem, cut, self.finished = found, "memory", False
                break
            except BaseException:
                self.close()
                raise
            waiting, large = self._waiting()
            fresh = waiting > 0 or self._look is not None
            due = self.spent - told >= (GLANCE if first else PATIENCE) or large or (first and fresh)
            frame = None
            if due or (fresh and self.spent - told >= GLANCE):
                frame = self._frame(None)
                self._meter()
                told, first = self.spent, False
                self._hold(frame)
            elif self.spent - turned < GLANCE:
                continue
            turned = self.spent
            try:
                yield frame
            except GeneratorExit:  # abandoned by the consumer
                self.close()
                raise
            del frame
            self._mark = self.clock()
        if cut is None:
            cut = "error" if self._reached else ("limit" if self._limited else None)
        if problem is None and self._postponed(stop):
            cut = "cancelled"
        frame = self._frame(cut, last=True)
        self._meter()
        suspended = keep is not None and cut in ("budget", "cancelled")
        if not suspended and self._plan is not None:
            self._plan.result.close()  # its rows are those of the frame
        self._hold(frame)
        self._suspended = suspended
        token = keep(self) if keep is not None and suspended else None
        if token is not None:  # from here on the cursor belongs to whoever has the token
            yield replace(frame, progress=replace(frame.progress, token=token))
            return
        try:
            yield frame
        finally:
            self.close()
        if problem is not None:
            raise problem

    def _hold(self, frame: Frame) -> None:
        """Count a frame until the next one, and what is encoded of it at a time, twice: it is copied when sent."""
        if self.account is not None:
            size = self._framed or frame.rows.nbytes
            self.account.hold(self.nbytes + size + 2 * min(size, ENCODED))

    def _ahead(self) -> int:
        """CPU time to reserve before a step: none for a last frame that will have no rows anyway."""
        return self._excess() + (0 if self._beyond("budget") else self._reserve())

    def _beyond(self, cut: Cut | None) -> bool:
        """Whether the last frame has no rows: it was cancelled, or they would go well beyond the budget."""
        reserve = self._reserve()
        if reserve <= GLANCE:
            return False
        sure = reserve - self._drawn  # the pace of sampling leaves time for its estimate
        late = self._limit is not None and self.spent + sure > self._limit + self._excused
        return cut == "cancelled" or (cut == "budget" and late)

    def _postponed(self, stop: threading.Event) -> bool:
        """Whether the last frame waits for the next time: it, or sending it, would take too long."""
        if self._plan is None:
            return False
        reserve, result = self._reserve(), self.plan.result
        if not isinstance(result, Plain) and not result.spilled and result.ended:
            return SENDING * self.nbytes > GLANCE and (stop.is_set() or self._late(reserve))
        return reserve > GLANCE and (stop.is_set() or self._late(reserve))

    def _late(self, reserve: int) -> bool:
        """Whether there is too little time to assemble the last frame, and to send it."""
        return CONTENTION * reserve + SENDING * self.nbytes > self._left() * 1e9

    def _waiting(self) -> tuple[int, bool]:
        """Rows of the answer that were not yet in a frame, and whether they make a large one."""
        if self._plan is None:
            return 0, False
        fresh = self.plan.result.fresh
        return fresh.rows, fresh.rows >= ROWS or fresh.nbytes >= self._large

    def _meter(self) -> None:
        """Add the CPU time since the last call to `spent`."""
        now = self.clock()
        self.spent += now - self._mark
        self._mark = now

    @property
    def _brief(self) -> bool:
        return self._plan is not None and self._plan.brief

    @property
    def _limited(self) -> bool:
        return self._plan is not None and isinstance(self.plan.result, Plain) and self.plan.result.full

    @property
    def _width(self) -> int:
        """Expressions to evaluate, each of which costs something however few the rows; aggregates cost the most."""
        bound = self.bound
        read = len(bound.outputs) + len(bound.predicates) + len(bound.group_keys) + len(bound.order)
        return read + 4 * len(bound.aggregates)

    def _excess(self) -> int:
        """CPU time of the shortest step, as far as it is not small, and of a frame of many columns."""
        if self._plan is None:
            return 0
        grouped = isinstance(self.plan.result, Aggregated)
        wide = EXPRESSION * self._width if grouped else 0
        return (0 if grouped else FRAMED * len(self.bound.outputs)) + max(wide - GLANCE, self._least - GLANCE, 0)

    def _reserve(self) -> int:
        """CPU time to reserve for the last frame."""
        if self._plan is None:
            return 0
        result = self.plan.result
        if isinstance(result, Plain) or result.spilled or result.ending:
            return 20_000
        if isinstance(result, Aggregated):
            kept = SORTING * self._matched if any(a.function in HOLDING for a in self.bound.aggregates) else 0
            aggregates = len(self.bound.aggregates)
            wide = len(self.bound.group_keys) // 4
            values = result.groups.size * (1 + aggregates + wide) + self._hits * wide
            return MS // 2 + self._drawn + kept + CLOSING * values + ESTIMATE * self._width
        return 400 * result.held * (1 + len(self.bound.order))

    @property
    def _drawn(self) -> int:
        """CPU time to reserve for an estimate from the sample."""
        return (
            0 if self._plan is None or self.plan.sampler is None else int(2.5 * self._looking * self.plan.sampler.done)
        )

    def _step(self, limit: int | None) -> bool:
        """Run one slice and size the next by its duration; returns whether it was the last."""
        done = self._done
        began = self.clock()
        try:
            next(self._steps)
        except StopIteration:
            self.finished = True
        except BaseException:
            self.finished = True
            raise
        took = self.clock() - began
        done = self._done - done
        if self._pace.slice == LEAST:
            self._least = took
        if done > 0:  # the steps of a slice are some before its candidates are counted, this one, and some after
            self._slice, self._allowed = done, self._pace.slice
            self._whole, self._first, self._after = self._after + took, took, 0
        else:
            self._after += took
        cost = max(self._whole, self._first + self._after)
        if self._slice and cost > 0:
            wanted = LONG_SLICE if limit is None else min(max((limit - self.spent) // 4, SLICE // 10), SLICE)
            fits = int(self._slice * wanted / cost)
            self._pace.slice = max(LEAST, min(MOST, fits, 4 * self._allowed))
        return self.finished

    @property
    def _done(self) -> int:
        """Candidates processed or sampled."""
        if self._plan is None:
            return 0
        return self.plan.worker.done + (self.plan.sampler.done if self.plan.sampler is not None else 0)

    def _frame(self, cut: Cut | None, last: bool = False) -> Frame:
        if self._plan is None:
            return Frame(no_rows(schema(self.bound)), "append", self.progress(cut))
        result = self.plan.result
        self._framed = result.fresh.nbytes
        if isinstance(result, Plain) or result.spilled:
            shown, mode = result.fresh.take(), "append"
        elif isinstance(result, Aggregated):
            if last and (self._beyond(cut) or (result.ending and (not result.ended or cut == "cancelled"))):
                shown, mode = Shown(no_rows(result.schema)), "append"
            elif last and result.final is not None:
                shown, mode = result.final, "replace"
            elif last:
                shown, mode = result.shown(self._look if self._reached and self._look else self._estimated()), "replace"
            elif self._look is not None:
                shown, mode, self._look = result.shown(self._look), "replace", None
            else:
                shown, mode = Shown(no_rows(result.schema)), "append"
        elif last and (cut == "memory" or self._sortable(cut)):
            shown, mode = result.take(), "replace"
        else:
            shown, mode = Shown(no_rows(result.schema)), "append"
        return Frame(shown.rows, mode, self.progress(cut), shown.lower, shown.upper)  # type: ignore[arg-type]  # one of the two

    def _sortable(self, cut: Cut | None) -> bool:
        """Whether the last frame of sorted rows has them: sorting them now, or sending them, may take long."""
        result = self.plan.result
        assert isinstance(result, Sorted)
        return cut != "cancelled" and (result.ended or not result.ending) and not self._beyond(cut)

    # --- progress ------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> Guess:
        """Total candidates, estimated."""
        if self._sizes is None:
            joined = self.plan.joined
            self._sizes = cardinality.candidates(self.bound, self.plan.snapshots) if joined is None else joined.pairs()
        return self._sizes

    def progress(self, cut: Cut | None = None) -> Progress:
        if self._plan is None:
            return self._unplanned(cut)
        result, operator, sampler = self.plan.result, self.plan.worker, self.plan.sampler
        complete = self.finished and not self._reached and cut != "cancelled" and self.plan.exact
        total = self._total(complete)
        if isinstance(result, Aggregated):
            seen = float(operator.done if sampler is None else max(operator.done, sampler.done))
            whole = self._candidates(complete)
            coverage = _share(seen, whole) if not complete else Guess(1.0, 1.0, 1.0)
        else:
            coverage = Guess(1.0, 1.0, 1.0) if complete else _share(float(result.count), total)
        if self.plan.joined is not None and not complete:
            total, coverage = _if_known(total), coverage if coverage.upper == 0 else _if_known(coverage)
        ran = [operator] if sampler is None else [operator, sampler]
        return Progress(
            rows=result.count,
            total=total,
            coverage=coverage,
            complete=complete,
            cut=cut,
            cpu_seconds=self.spent / 1e9,
            granularities=self.plan.pipeline.granularities,
            read=sum(o.read for o in ran),
            entries=max(o.entries for o in ran),
            rank=max(o.rank for o in ran),
            warnings=tuple(self.plan.warnings),
        )

    def _unplanned(self, cut: Cut | None) -> Progress:
        """Progress before there is a plan: at most every tuple, or every pair of them, is in the answer."""
        bound = self.bound
        most = float(math.prod(source.stream.count for source in bound.sources))
        if bound.limit is not None and not bound.grouped:
            most = min(most, float(bound.limit))
        return Progress(
            rows=0,
            total=Guess(math.nan, 0.0, most),
            coverage=Guess(0.0, 0.0, 0.0),
            complete=False,
            cut=cut,
            cpu_seconds=self.spent / 1e9,
            granularities=(),
            read=0,
            entries=0,
            rank=0,
        )

    def _candidates(self, complete: bool) -> Guess:
        done = float(self.plan.worker.done)
        if complete:
            return Guess(done, done, done)
        left = self.plan.worker.remaining()
        if left is None:
            return self.sizes
        return Guess(done + left.value, done + left.lower, done + left.upper)

    def _remaining(self) -> Guess | None:
        """Candidates of which it is not known whether they are in the answer."""
        left = self.plan.worker.remaining()
        return None if left is None else Guess(*(x + self._held for x in left))

    def _total(self, complete: bool) -> Guess:
        """Total rows; for aggregates, the candidates that go into them."""
        bound, worker = self.bound, self.plan.worker
        matched = float(self._matched)
        if self.plan.sampler is not None and not complete:
            drawn = float(self.plan.sampler.drawn)
            whole = self._candidates(complete)
            if not bound.predicates:
                return whole
            rate = (self._hits + 2) / (drawn + 4)  # Agresti-Coull interval of a proportion, somewhat widened
            reach = 2.5 * float(np.sqrt(rate * (1 - rate) / (drawn + 4)))
            share = self._hits / drawn if drawn else cardinality.PASS
            certain = float(self.plan.sampler.done) - drawn
            low, rest, high = (max(n - certain, 0.0) for n in (whole.lower, whole.value, whole.upper))
            lower = self._certain + max(rate - reach, 0.0) * low
            return Guess(self._certain + rest * share, lower, self._certain + min(rate + reach, 1.0) * high)
        if complete and not self._limited:
            rows = matched if bound.limit_by is None or bound.grouped else float(self.plan.result.count)
            return Guess(rows, rows, rows)
        left = self._remaining()
        if self.plan.joined is not None:
            value, lower, upper = self._joined(self.plan.joined, left)
        elif left is None:
            value, lower, upper = cardinality.answer_rows(bound, self.sizes)
            lower = max(lower, matched)
        else:
            rate = matched / worker.done if worker.done else (cardinality.PASS if bound.predicates else 1.0)
            value = matched + left.value * min(rate, 1.0)
            lower = matched + (0.0 if bound.predicates else left.lower)
            upper = matched + left.upper
        if bound.limit_by is not None and not bound.grouped:  # how many rows a value has is not known beforehand
            rows = float(self.plan.result.count)
            rate = rows / worker.done if worker.done else 1.0
            value, lower = rows + (upper if left is None else left.value) * min(rate, 1.0), rows
            if left is not None and isinstance(worker, Guided) and worker.limit is not None:
                upper = min(upper, rows + bound.limit_by.most * (worker.entries - worker.rank + 1.0))
                value = upper if worker.limit.every else min(value, upper)
        if bound.limit is not None and not bound.grouped:
            value, lower, upper = (min(x, float(bound.limit)) for x in (value, lower, upper))
        return Guess(max(value, lower), lower, max(upper, lower, value))

    def _joined(self, joined: JoinCardinality, left: Guess | None) -> Guess:
        """Total rows of a join: exact once all keys are listed with exact counts and no condition is left to fail."""
        matched = float(self._matched)
        most = math.prod(s.tuples.upper for s in self.plan.snapshots) if left is None else matched + left.upper
        if left is not None and left.lower == left.upper and not joined.conditions:
            return Guess(most, most, most)
        value, lower, upper = (min(x, most) for x in joined.rows())
        if matched > upper:  # one estimate in twenty is refuted like this: then only what is certain remains
            return Guess(matched, matched, most)
        return Guess(max(value, matched), max(lower, matched), upper)


def _if_known(guess: Guess) -> Guess:
    """The same, or unknown if the bounds are too far apart for its value to mean anything."""
    known = guess.upper <= KNOWN * guess.lower
    return guess if known else guess._replace(value=math.nan)


def _share(part: float, whole: Guess) -> Guess:
    """A fraction with bounds: the larger the whole, the smaller the fraction."""

    def of(total: float) -> float:
        return min(part / total, 1.0) if total > 0 else (1.0 if part else 0.0)

    return Guess(of(whole.value), of(whole.upper), of(whole.lower))


def _worst(found: Estimated) -> float:
    """The largest relative error of any aggregate; infinite if a group has fewer than `FEWEST` sampled rows."""
    if found.exact:
        return 0.0
    if len(found.hits) == 0 or found.hits.min() < FEWEST:
        return np.inf
    worst = 0.0
    for value, lower, upper in zip(found.value, found.lower, found.upper, strict=True):
        if lower.null_count or upper.null_count or value.null_count:
            return np.inf
        middle, low, high = (_floats(a) for a in (value, lower, upper))
        half = np.maximum(high - middle, middle - low)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = max(worst, float(np.where(half > 0, half / np.abs(middle), 0.0).max()))
    return worst


def _floats(array: pa.Array) -> NDArray[np.float64]:
    found: NDArray[np.float64] = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
