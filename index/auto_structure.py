"""`STRUCTURE auto`: chooses the structure of a summary by the cost of its workload.

Every batch and query is priced for each of the four structures: by a model in nanoseconds, corrected by measurements of
the current structure. The excess cost of the current structure over another one accumulates as *lost*; savings are
subtracted, down to zero, so that the past loses its influence. A structure is changed when the loss reaches the cost of
the change, which bounds the changes under an oscillating workload.

Only so many batches and cheap queries are measured that measuring takes about 1 % of the time; they represent those
between them. Nothing here reads a clock or a tuple: the same costs and counts give the same choice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from promising.index.options import STRUCTURES

FIRST = "none"  # costs nothing until the first query
KIN = ("adaptive", "grid", "time")  # same answers, except for the shape of their zones

# Priors in nanoseconds, from docs/reference/benchmarks.md; measurements correct them.
CALL = {"none": 1_000.0, "time": 12_000.0, "grid": 12_000.0, "adaptive": 12_000.0}  # per batch
TUPLE = {"none": 0.5, "time": 40.0, "grid": 41.0, "adaptive": 46.0}  # per tuple of it, in addition to the log
SCAN_CALL = 30_000.0  # per query without postings,
SCAN_LOG = 2.5  # per tuple in the log,
SCAN_TUPLE, SCAN_STEP = 8.0, 4.0  # per tuple in the window, and that times the logarithm of the keys
FIND_CALL, FIND_KEY, FIND_ROW = 20_000.0, 50.0, 8.0  # by postings
HIT = 10.0  # per result row
LOOK_CALL, LOOK_KEY = 200_000.0, 400.0  # regions and estimates
VISIT_CALL, VISIT_ROW = 30_000.0, 2.5  # to find a row, and for the caller to read it
ENTER = 50.0  # per tuple that a query adds to its own directory
REBUILD, REBUILD_COLD = 80.0, 1_000.0  # per tuple, in memory and on disk
DRIFT = 0.5  # fraction of zones that are cut at jumps of behaviour, before any measurement

LEAST = 1_000_000.0  # minimum loss in nanoseconds before a change
BACK = 0.5  # fraction of a rebuild that dropping a structure costs, as it may be needed again
FORGET = 0.95  # weight of older measurements at each new one
WILD = 16.0  # times the model; beyond, a measurement is an interruption, not a cost
PAUSE = 5_000_000.0  # nanoseconds of queries of a kind between two measurements, which take 1 % of that
BATCHES = 2_000_000.0  # the same for batches, by the model
SCANS, SCAN_PAUSE = 2, 500_000.0  # queries, without structure: the next may cost many times as much

Prices = Mapping[str, float]


@dataclass
class Kind:
    """Queries of one kind: asked, weighed, still to be skipped, and the prices of the last one measured."""

    asked: int = 0
    weighed: int = 0
    skip: int = 0
    prices: Prices = field(default_factory=dict)


class Auto:
    """The choice for one summary. `now` is the current structure, `why` the reason. Times are CPU nanoseconds.

    buckets: value buckets of `grid` and `adaptive`. maxlength: tuples of a zone.

    >>> auto = Auto(buckets=64)
    >>> auto.now, auto.why
    ('none', 'nothing was asked yet')
    >>> for _ in range(50):  # 100 keys among a million tuples
    ...     auto.probed(keys=100, rows=500, window=1_000_000, kept=1_000_000, spent=40_000_000)
    >>> auto.choice(tuples=1_000_000)
    'time'
    """

    def __init__(
        self, buckets: int, now: str = FIRST, why: str = "nothing was asked yet", maxlength: int = 1 << 14
    ) -> None:
        self.now = now
        self.why = why
        self.buckets = buckets
        self.maxlength = maxlength
        self.drift = DRIFT
        self.news = False  # whether anything was weighed since the last choice
        self.tuples = self.questions = 0  # since the last change
        self._lost = self._nothing()
        self._measured: dict[tuple[str, str], tuple[float, float]] = {}  # (what, structure): measured, modelled
        self._all = (0.0, 0.0)  # the same for all work
        self._batches = self._gathered = 0
        self._took = 0.0  # modelled cost of these batches
        self._sample: tuple[int, float] | None = None  # tuples of a batch, and its cost
        self._kinds = {kind: Kind() for kind in ("probe", "look", "estimate", "visit", "query")}
        self._keys = 1  # of the last request for regions

    def _nothing(self) -> dict[str, float]:
        return {name: 0.0 for name in STRUCTURES if name != self.now}

    # --- batches ---------------------------------------------------------------------------------------------------

    @property
    def measuring(self) -> bool:
        return not self._batches

    def inserted(self, tuples: int, spent: float | None, cuts: Mapping[str, int] | None = None) -> None:
        """A batch was inserted. cuts: zones by reason of the cut, if there are zones."""
        if spent is not None and self._sample is None:
            self._sample = tuples, spent
            if cuts and self.now == "adaptive":
                self.drift = cuts.get("behaviour", 0) / max(sum(cuts.values()), 1)
        self.tuples += tuples
        self._batches, self._gathered = self._batches + 1, self._gathered + tuples
        self._took += CALL[self.now] + TUPLE[self.now] * tuples
        if self._took >= BATCHES:
            self._settle()

    # --- questions -------------------------------------------------------------------------------------------------

    def skips(self, kind: str) -> bool:
        """Count a query of a kind; returns whether that is all, since only some cheap ones are measured."""
        found = self._kinds[kind]
        if not found.skip:
            return False
        found.skip -= 1
        found.asked += 1
        self.questions += 1
        return True

    def probed(self, keys: int, rows: int, window: int, kept: int, spent: float) -> None:
        """Tuples of `keys` were read, from a window with `window` of the `kept` tuples; `rows` were found."""
        steps = math.log2(keys + 1)
        scan = SCAN_CALL + SCAN_LOG * kept + (SCAN_TUPLE + SCAN_STEP * steps) * window + HIT * rows
        walked = rows * kept / max(window, 1)  # a chain covers all of the past
        find = FIND_CALL + FIND_KEY * keys + FIND_ROW * min(walked, kept) + HIT * rows
        self._asked("probe", _either(scan, find), spent)

    def looked(self, keys: int, kept: int, spent: float) -> None:
        """Regions were requested. Their benefit shows when they are visited."""
        self._keys = keys
        self._asked("look", _either(SCAN_CALL + SCAN_LOG * kept, LOOK_CALL + LOOK_KEY * keys), spent)

    def estimated(self, keys: int, window: int, kept: int, spent: float) -> None:
        """Estimates were requested. One bucket for B errs sqrt(B) times more, fixed zones by `drift`; none scans."""
        scan = SCAN_CALL + SCAN_LOG * kept + (SCAN_TUPLE + SCAN_STEP * math.log2(keys + 1)) * window
        look = LOOK_CALL + LOOK_KEY * keys
        rough = math.sqrt(self.buckets)
        prices = {"none": scan + look, "time": look * rough, "grid": look * (1 + self.drift), "adaptive": look}
        self._asked("estimate", prices, spent if self.now == "adaptive" else None)

    def visited(self, rows: int, window: int, kept: int) -> None:
        """`rows` tuples of a region were read. Without structure, all cells of the keys are one region, read once."""
        per_look = max(self._kinds["visit"].asked / max(self._kinds["look"].asked, 1), 1.0)
        scan = (VISIT_CALL + SCAN_LOG * kept + VISIT_ROW * window) / per_look
        cells, cell = 1.0, rows / self.buckets if self.now == "time" else float(rows)
        if self.now == "none":
            cells, cell = self._keys * (window // self.maxlength + 1.0), self._keys * window / self.buckets
        fine = VISIT_CALL * cells + VISIT_ROW * cell
        coarse = VISIT_CALL * cells + VISIT_ROW * cell * self.buckets
        prices = {"none": scan, "time": coarse, "grid": fine * (1 + self.drift), "adaptive": fine}
        self._asked("visit", prices, None)

    def queried(self, tuples: int) -> None:
        """A query needed rows by key, of so many tuples: without postings it reads them all."""
        self._asked("query", _either(ENTER * tuples, 0.0), None)

    def _asked(self, kind: str, prices: Prices, spent: float | None) -> None:
        """A query that was not skipped. spent: its cost, unless the price covers more than the answer."""
        self._settle()
        found = self._kinds[kind]
        found.asked += 1
        found.weighed = found.asked
        found.prices = prices
        self.questions += 1
        if spent is None:
            spent = prices[self.now] * self._rate(kind, self.now)
        else:
            self._all = self._measure(kind, self.now, prices[self.now], spent, self._all)
        self._weigh((kind, prices, 1))
        spent = max(spent, 1.0)
        found.skip = min(int(SCAN_PAUSE / spent), SCANS) if self.now == "none" else int(PAUSE / spent)

    # --- costs -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Weigh everything since the last call at once, as it was mixed."""
        work = [
            (name, kind.prices, kind.asked - kind.weighed)
            for name, kind in self._kinds.items()
            if kind.asked > kind.weighed
        ]
        for name, _, _ in work:
            self._kinds[name].weighed = self._kinds[name].asked
        if self._batches:
            work.append(("insert", self._batch_prices(), 1))
            self._batches, self._gathered, self._took, self._sample = 0, 0, 0.0, None
        if work:
            self._weigh(*work)

    def _weigh(self, *work: tuple[str, Prices, int]) -> None:
        """Compare the cost of work with its cost under other structures: (kind, prices, count)."""
        self.news = True
        paid = sum(prices[self.now] * self._rate(what, self.now) * times for what, prices, times in work)
        for name, lost in self._lost.items():
            other = sum(prices[name] * self._rate(what, name) * times for what, prices, times in work)
            self._lost[name] = max(0.0, lost + paid - other)

    def _batch_prices(self) -> Prices:
        """Of the batches not weighed yet; records the measurement of the first."""
        prices = {s: CALL[s] * self._batches + TUPLE[s] * self._gathered for s in STRUCTURES}
        if self._sample is not None:
            tuples, taken = self._sample
            model = prices[self.now]
            spent = taken * model / (CALL[self.now] + TUPLE[self.now] * tuples)
            self._all = self._measure("insert", self.now, model, spent, self._all)
        return prices

    def _measure(
        self, what: str, structure: str, model: float, spent: float, every: tuple[float, float]
    ) -> tuple[float, float]:
        """Record a measurement; kin share those of answers, which vary more over time. Returns the sums with it."""
        if what != "insert" and structure in KIN:
            structure = KIN[0]
        spent = min(max(spent, model / WILD), model * WILD)
        taken, by_model = self._measured.get((what, structure), (0.0, 0.0))
        self._measured[what, structure] = taken * FORGET + spent, by_model * FORGET + model
        return every[0] * FORGET + spent, every[1] * FORGET + model

    def _rate(self, what: str, structure: str) -> float:
        """Measured over modelled cost: of this work and structure, else of related ones, else of everything."""
        kin = (structure,) if structure == "none" else (structure, *KIN)
        for name in kin:
            found = self._measured.get((what, name))
            if found is not None:
                return found[0] / found[1]
        return self._all[0] / self._all[1] if self._all[1] else 1.0

    def rebuild(self, tuples: int, cold: int = 0) -> float:
        """The cost of building a structure of so many tuples, `cold` of them on disk."""
        return (REBUILD * (tuples - cold) + REBUILD_COLD * cold) * self._rate("rebuild", "adaptive")

    def lost(self, structure: str) -> float:
        """The accumulated excess over the cost of another structure."""
        return self._lost.get(structure, 0.0)

    # --- the choice ------------------------------------------------------------------------------------------------

    def choice(self, tuples: int, cold: int = 0) -> str | None:
        """The structure to change to, built from so many tuples; None to keep the current one."""
        if not self.news:
            return None
        self.news = False
        rebuild = self.rebuild(tuples, cold)
        gains = {
            name: lost - max(rebuild * (BACK if name == "none" else 1.0), LEAST) for name, lost in self._lost.items()
        }
        best = max(gains, key=lambda name: gains[name])
        return best if gains[best] >= 0 else None

    def changed(
        self, structure: str, tuples: int = 0, cold: int = 0, spent: float | None = None, why: str | None = None
    ) -> None:
        """The summary has a new structure; building it took `spent`. why: if not by `choice`."""
        lost, before = self.lost(structure), self.now
        if spent is not None and structure != "none" and tuples:
            model = REBUILD * (tuples - cold) + REBUILD_COLD * cold
            self._measure("rebuild", "adaptive", model, spent, (0.0, 0.0))
        self.why = why or (
            f"{before} has cost {lost / 1e6:,.1f} ms more than it would have, over {self.tuples:,} tuples and"
            f" {self.questions:,} questions"
        )
        self.now = structure
        self._begin()

    def stays(self, why: str) -> None:
        """The change failed: discard the accumulated loss."""
        self.why = why
        self._begin()

    def _begin(self) -> None:
        self.tuples = self.questions = self._batches = self._gathered = 0
        self._took, self._sample = 0.0, None
        self._lost = self._nothing()
        self._kinds = {kind: Kind() for kind in self._kinds}


def _either(scan: float, find: float) -> Prices:
    """Work that costs the same for all structures but none."""
    return {s: scan if s == "none" else find for s in STRUCTURES}
