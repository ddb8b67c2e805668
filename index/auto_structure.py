"""`STRUCTURE auto`: which structure a summary should have, from what its work costs.

Every batch and every question is priced for each of the four structures: by a model of what they do, in nanoseconds,
corrected by what was measured of the structure in use. What the structure in use costs more than another one would is
added up as *lost*; what it costs less is taken off again, down to zero, so that the past is forgotten where it no
longer matters. When as much is lost as a change costs, it is made. So what a change costs has been lost before it is
made, and a load that goes to and fro causes no more changes than that.

To look costs, too: of batches and of cheap questions only so many are measured that looking takes about a hundredth of
the time; they stand for those between them.

Nothing here reads a clock or a tuple: costs and counts in, a choice out; the same of both give the same choice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from promising.index.options import STRUCTURES

FIRST = "none"  # nothing is lost by it until a question comes
KIN = ("adaptive", "grid", "time")  # they answer in the same way, but for the shape of their zones

# Priors, in nanoseconds: shares of what docs/reference/benchmarks.md has. What is measured corrects them.
CALL = {"none": 1_000.0, "time": 12_000.0, "grid": 12_000.0, "adaptive": 12_000.0}  # a batch
TUPLE = {"none": 0.5, "time": 40.0, "grid": 41.0, "adaptive": 46.0}  # a tuple of it, beside the log
SCAN_CALL = 30_000.0  # a question without postings,
SCAN_LOG = 2.5  # for each tuple in the log,
SCAN_TUPLE, SCAN_STEP = 8.0, 4.0  # for each in the window, and that times the logarithm of the keys
FIND_CALL, FIND_KEY, FIND_ROW = 20_000.0, 50.0, 8.0  # by postings
HIT = 10.0  # a row of the answer
LOOK_CALL, LOOK_KEY = 200_000.0, 400.0  # regions and estimates
VISIT_CALL, VISIT_ROW = 30_000.0, 2.5  # to find a row, and for whoever visits to read it
ENTER = 50.0  # a tuple that a query enters into a directory of its own
REBUILD, REBUILD_COLD = 80.0, 1_000.0  # a tuple, in memory and on disk
DRIFT = 0.5  # share of zones that the stream itself cuts, as long as nobody has looked

LEAST = 1_000_000.0  # nanoseconds that must be lost before anything is changed
BACK = 0.5  # of a rebuild: what letting go of a structure counts, as it may be needed again
FORGET = 0.95  # share that measurements keep with each further one
WILD = 16.0  # times the model: more is an interruption, and no cost of the structure
PAUSE = 5_000_000.0  # nanoseconds of questions of a kind from one look to the next: to look takes a hundredth of it
BATCHES = 2_000_000.0  # the same of batches, by the model
SCANS, SCAN_PAUSE = 2, 500_000.0  # questions, without structure: the next may cost any number of times as much

Prices = Mapping[str, float]


@dataclass
class Kind:
    """Questions of one kind: how many there were, how many are weighed, how many more are to be skipped, and what one
    costs, by the last that was looked at.
    """

    asked: int = 0
    weighed: int = 0
    skip: int = 0
    prices: Prices = field(default_factory=dict)


class Auto:
    """The choice for one summary. `now` is the structure in use, `why` the reason in words.

    buckets, maxlength: value buckets of `grid` and `adaptive`, and tuples of a zone. Times are CPU nanoseconds.

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
        self.news = False
        """Whether anything was weighed since the last choice."""
        self.tuples = self.questions = 0  # since the last change
        self._lost = self._nothing()
        self._measured: dict[tuple[str, str], tuple[float, float]] = {}  # (what, structure): measured, by the model
        self._all = (0.0, 0.0)  # the same of all work
        self._batches = self._gathered = 0
        self._took = 0.0  # what these batches have cost, by the model
        self._sample: tuple[int, float] | None = None  # tuples of a batch, and what it took
        self._kinds = {kind: Kind() for kind in ("probe", "look", "estimate", "visit", "query")}
        self._keys = 1  # whose regions were asked for last

    def _nothing(self) -> dict[str, float]:
        return {name: 0.0 for name in STRUCTURES if name != self.now}

    # --- batches ---------------------------------------------------------------------------------------------------

    @property
    def measuring(self) -> bool:
        """Whether what the next batch takes should be measured; of others it need not be known."""
        return not self._batches

    def inserted(self, tuples: int, spent: float | None, cuts: Mapping[str, int] | None = None) -> None:
        """A batch came in. cuts: zones by the reason they were cut for, if there are zones."""
        if spent is not None and self._sample is None:
            self._sample = tuples, spent
            if cuts and self.now == "adaptive":
                own = cuts.get("error", 0) + cuts.get("behaviour", 0)
                self.drift = own / max(sum(cuts.values()), 1)
        self.tuples += tuples
        self._batches, self._gathered = self._batches + 1, self._gathered + tuples
        self._took += CALL[self.now] + TUPLE[self.now] * tuples
        if self._took >= BATCHES:
            self._settle()

    # --- questions -------------------------------------------------------------------------------------------------

    def skips(self, kind: str) -> bool:
        """Count a question of a kind, and tell whether that is all: of cheap ones only some are looked at."""
        found = self._kinds[kind]
        if not found.skip:
            return False
        found.skip -= 1
        found.asked += 1
        self.questions += 1
        return True

    def probed(self, keys: int, rows: int, window: int, kept: int, spent: float) -> None:
        """Tuples of `keys` were asked for, of a window with `window` of the `kept` tuples; `rows` were found."""
        steps = math.log2(keys + 1)
        scan = SCAN_CALL + SCAN_LOG * kept + (SCAN_TUPLE + SCAN_STEP * steps) * window + HIT * rows
        walked = rows * kept / max(window, 1)  # a chain leads through all of the past
        find = FIND_CALL + FIND_KEY * keys + FIND_ROW * min(walked, kept) + HIT * rows
        self._asked("probe", _either(scan, find), spent)

    def looked(self, keys: int, kept: int, spent: float) -> None:
        """Regions were asked for. What they are worth shows when they are visited."""
        self._keys = keys
        self._asked("look", _either(SCAN_CALL + SCAN_LOG * kept, LOOK_CALL + LOOK_KEY * keys), spent)

    def estimated(self, keys: int, window: int, kept: int, spent: float) -> None:
        """Estimates were asked for.

        Without structure there are none that say anything: it would take a scan to know as much. One bucket instead of
        B is worse by the root of B, fixed zones by what the stream itself would have cut.
        """
        scan = SCAN_CALL + SCAN_LOG * kept + (SCAN_TUPLE + SCAN_STEP * math.log2(keys + 1)) * window
        look = LOOK_CALL + LOOK_KEY * keys
        rough = math.sqrt(self.buckets)
        prices = {"none": scan + look, "time": look * rough, "grid": look * (1 + self.drift), "adaptive": look}
        self._asked("estimate", prices, spent if self.now == "adaptive" else None)

    def visited(self, rows: int, window: int, kept: int) -> None:
        """The tuples of a region were asked for: `rows` as it is built now.

        A key has one cell in each zone that may hold it; without structure all of them are one region, to be read once.
        """
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
        """A question that was not skipped. spent: what it took, unless the price is for more than the answer."""
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

    # --- what it costs ---------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Weigh what has come since the last time, all of it at once, as it came mixed."""
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
        """Compare what work has cost with what it would have by other structures: of a kind, its prices, how often."""
        self.news = True
        paid = sum(prices[self.now] * self._rate(what, self.now) * times for what, prices, times in work)
        for name, lost in self._lost.items():
            other = sum(prices[name] * self._rate(what, name) * times for what, prices, times in work)
            self._lost[name] = max(0.0, lost + paid - other)

    def _batch_prices(self) -> Prices:
        """Of the batches that were not weighed yet; what the first of them took is taken note of."""
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
        """Take note of what was measured; returns the sums of `every` with it.

        What an answer takes is noted of all kin: it changes with time more than from one to the other.
        """
        if what != "insert" and structure in KIN:
            structure = KIN[0]
        spent = min(max(spent, model / WILD), model * WILD)
        taken, by_model = self._measured.get((what, structure), (0.0, 0.0))
        self._measured[what, structure] = taken * FORGET + spent, by_model * FORGET + model
        return every[0] * FORGET + spent, every[1] * FORGET + model

    def _rate(self, what: str, structure: str) -> float:
        """What was measured over the model: of this work and structure, else of its kin, else of everything."""
        kin = (structure,) if structure == "none" else (structure, *KIN)
        for name in kin:
            found = self._measured.get((what, name))
            if found is not None:
                return found[0] / found[1]
        return self._all[0] / self._all[1] if self._all[1] else 1.0

    def rebuild(self, tuples: int, cold: int = 0) -> float:
        """What it takes to build a structure of so many tuples, `cold` of them on disk."""
        return (REBUILD * (tuples - cold) + REBUILD_COLD * cold) * self._rate("rebuild", "adaptive")

    def lost(self, structure: str) -> float:
        """What was paid, since it last paid off, over what another structure would have cost."""
        return self._lost.get(structure, 0.0)

    # --- the choice ------------------------------------------------------------------------------------------------

    def choice(self, tuples: int, cold: int = 0) -> str | None:
        """The structure to change to, with so many tuples to build it of; None to leave it as it is."""
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
        """The summary has another structure now; building it of so many tuples took `spent`.

        why: if it was not by `choice`.
        """
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
        """The change could not be made: what was lost so far is no reason any more to try again."""
        self.why = why
        self._begin()

    def _begin(self) -> None:
        self.tuples = self.questions = self._batches = self._gathered = 0
        self._took, self._sample = 0.0, None
        self._lost = self._nothing()
        self._kinds = {kind: Kind() for kind in self._kinds}


def _either(scan: float, find: float) -> Prices:
    """Work that all structures do alike, but for none."""
    return {s: scan if s == "none" else find for s in STRUCTURES}
