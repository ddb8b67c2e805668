"""Whatever comes, in whatever order and batches: a stream and its summaries agree with the oracle on every tuple."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from promising.errors import CeilingReached
from promising.index import Stream, SummaryIndex
from promising.index.check import check_stream
from promising.index.summary import SummaryState
from promising.testing import ManualClock
from tests.index.world import (
    SCHEMA,
    SMALL,
    STRUCTURES,
    UNPOSTED,
    ColdShelf,
    Columns,
    columns,
    contents,
    cool,
    ids,
    oracle_for,
    pairs,
    part,
    restarted,
    small_chunks,
    words,
)
from tests.tiers import examples

KEYS = np.array([*range(-3, 27), 10**12, -(1 << 63), (1 << 63) - 1], np.int64)
ABSENT = np.array([500, -77, 1 << 40], np.int64)
ASKED = np.concatenate((KEYS, ABSENT, KEYS[:2]))  # two keys are asked for twice

seeds = st.integers(0, 1 << 32)
sizes = st.one_of(st.integers(1, 40), st.integers(200, 700))


class Machine(RuleBasedStateMachine):
    """Four structures, a string-keyed summary and one of another depth on one stream, and the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(
        granularity=st.integers(8, 40),
        rate=st.integers(2, 4),
        depth=st.integers(1, 4),
        lateness=st.sampled_from([0, 0, 7, 60]),
        keep=st.sampled_from([None, 8, 13, 40, 400]),
        max_jump=st.sampled_from([None, 61, 600]),
        now=st.sampled_from([-5000, 0, 1_700_000_000_000_000]),
        chunk=st.sampled_from([64, 512, 16384]),
        room=st.sampled_from([2_000, 30_000, None]),
        probes=st.integers(1, 2),
        tolerance=st.sampled_from([0.5, 4.0, 1000.0]),
        maxlength=st.sampled_from([256, 2000]),
        effect=st.sampled_from([0.01, 0.2]),
    )
    def start(
        self, granularity, rate, depth, lateness, keep, max_jump, now, chunk, room, probes, tolerance, maxlength, effect
    ):
        small_chunks(self.patch, chunk)
        self.clock = ManualClock(now)
        self.stream = Stream(
            "s",
            SCHEMA,
            "ts",
            lateness=lateness,
            keep=None if keep is None else keep * granularity,
            max_future=50,
            max_jump=max_jump,
            clock=self.clock,
            max_tuples=room,
            seed=granularity,
        )
        self.options = replace(SMALL, probes=probes, tolerance=tolerance, maxlength=maxlength, effect=effect)
        self.shelf = ColdShelf()
        self.geometry = (granularity, (rate, depth))
        self.received: dict[str, int] = {}
        self.summaries: dict[str, SummaryIndex] = {}
        for structure in STRUCTURES:
            self.create(structure, "k", structure, depth)
        self.create("text", "s", "adaptive", depth)
        self.create("other", "k", "adaptive", depth + 1)
        for name, key in UNPOSTED.items():
            self.create(name, key, "adaptive", depth)
        self.oracle = oracle_for(self.summaries["grid"], self.stream, self.clock)
        self.homes: dict[str, dict[int, tuple[int, int, int]]] = {}
        self.accepted = self.full = self.seen = 0
        self.newest = now
        self.windows: list[tuple[int, int] | None] = [None]

    def create(self, name: str, key: str, structure: str, depth: int) -> None:
        granularity, (rate, _) = self.geometry
        options = replace(self.options, postings=name not in UNPOSTED)
        self.summaries[name] = self.stream.create_summary(
            name, key, granularity=granularity, collapse=(rate, depth), structure=structure, options=options
        )
        self.received[name] = self.stream.count

    # --- what happens --------------------------------------------------------------------------------------------

    def feed(self, times: np.ndarray, rng: np.random.Generator, cuts: int, among: np.ndarray = KEYS) -> None:
        """Offer tuples to both sides, the stream's cut into batches at random. The first of `among` are popular."""
        weights = 1.0 / np.arange(1, len(among) + 1)
        keys = rng.choice(among, len(times), p=weights / weights.sum())
        batch = columns(times, keys, self.seen)
        self.seen += len(times)
        borders = sorted({0, len(times), *rng.integers(0, len(times), cuts).tolist()})
        for start, stop in pairwise(borders):
            self.offer(part(batch, start, stop), stop - start)
        self.windows = [None, *(self.window(rng) for _ in range(2))]

    def offer(self, batch: Columns, tuples: int) -> None:
        before = self.stream.count
        try:
            out = self.stream.append(batch)
        except CeilingReached:
            assert before + tuples > self.stream._log.limit  # nothing less is refused
            self.full += tuples
            return
        self.oracle.offered = int(batch["id"][0])  # tuples that the ceiling kept out have a number too
        accepted, refused = self.oracle.append(batch)
        self.accepted += accepted
        assert (out.accepted, out.refused) == (accepted, refused)
        for name in self.received:
            self.received[name] += accepted

    def window(self, rng: np.random.Generator) -> tuple[int, int]:
        span = self.geometry[0] * 12
        start, end = np.sort(self.newest + rng.integers(-span, 60, 2)).tolist()
        return start, end

    @rule(seed=seeds, n=sizes, cuts=st.integers(0, 4), pace=st.sampled_from([0.02, 0.3, 3.0]))
    def ordered(self, seed, n, cuts, pace):
        rng = np.random.default_rng(seed)
        times = self.newest + np.cumsum(rng.exponential(pace, n)).astype(np.int64)
        self.newest = int(times[-1])
        self.clock.set(max(self.clock(), self.newest))
        self.feed(times, rng, cuts)

    @rule(seed=seeds, n=sizes, cuts=st.integers(0, 4), reach=st.integers(1, 12))
    def late(self, seed, n, cuts, reach):
        rng = np.random.default_rng(seed)
        self.feed(self.newest - rng.integers(0, reach * self.geometry[0], n), rng, cuts)

    @rule(seed=seeds, n=sizes, cuts=st.integers(0, 4))
    def from_all_of_time(self, seed, n, cuts):
        rng = np.random.default_rng(seed)
        granularity, (rate, depth) = self.geometry
        reach = 3 * granularity * rate ** (depth - 1)
        self.feed(self.newest - rng.integers(-5, reach, n), rng, cuts)

    @rule(seed=seeds, n=sizes, cuts=st.integers(0, 4))
    def same_instants(self, seed, n, cuts):
        rng = np.random.default_rng(seed)
        self.feed(np.repeat(self.newest - rng.integers(0, 30, 3), n)[:n], rng, cuts)

    @rule(seed=seeds, n=st.integers(300, 700))
    def change_of_behaviour(self, seed, n):
        """Enough tuples of one instant for a zone, then as many in which other keys are popular."""
        rng = np.random.default_rng(seed)
        for _ in range(2):
            self.feed(np.full(n, self.newest), rng, 1, rng.permutation(KEYS)[:3])

    @rule(seed=seeds, n=st.integers(1, 60), cuts=st.integers(0, 4))
    def future(self, seed, n, cuts):
        """Some within the allowed skew of 50, some beyond it; those within move the watermark up to the clock."""
        rng = np.random.default_rng(seed)
        times = self.clock() + rng.integers(-10, rng.choice([40, 52, 200]), n)
        times[rng.random(n) < 0.05] += 1 << 50
        self.feed(times, rng, cuts)

    @rule(by=st.sampled_from([1, 60, 500, 10**7]))
    def tick(self, by):
        self.clock.tick(by)

    @rule(by=st.sampled_from([1, 60, 10**7]))
    def turn_the_clock_back(self, by):
        self.clock.set(self.clock() - by)

    @rule(seed=seeds, periods=st.integers(2, 200), n=st.integers(1, 30))
    def jump(self, seed, periods, n):
        """Nothing for a long time, then one batch that begins in the past and ends in the present."""
        rng = np.random.default_rng(seed)
        before, self.newest = self.newest, self.newest + periods * self.geometry[0]
        self.clock.set(max(self.clock(), self.newest))
        self.feed(np.linspace(before, self.newest, n).astype(np.int64), rng, 0)

    @rule(by=st.integers(-100, 400))
    def punctuate(self, by):
        self.clock.set(max(self.clock(), self.newest + by))
        self.stream.advance(self.newest + by)
        self.oracle.punctuate(self.newest + by)

    @rule(keep=st.sampled_from([None, 8, 9, 30, 300]))
    def keep_longer_or_shorter(self, keep):
        span = None if keep is None else max(keep * self.geometry[0], self.stream.lateness)
        before = self.stream.kept
        expected = self.stream.would_remove(span)
        removed = self.stream.set_keep(span)
        self.oracle.alter(span)
        assert removed == expected == before - self.stream.kept
        assert self.stream.kept == len(self.oracle.live())

    @rule(by=st.sampled_from([1, 60, 500, 10**7]))
    def set_the_watermark_back(self, by):
        """What KEEP has removed is there again, unless its memory has been released."""
        if self.stream.watermark is not None:
            wanted = min(self.stream.watermark - by, self.clock())
            self.stream.set_watermark(wanted)
            self.oracle.set_watermark(wanted, ids(self.stream, self.stream._log.rows()).tolist())

    @rule(name=st.sampled_from([*STRUCTURES, "text", *UNPOSTED]))
    def make_anew(self, name):
        """A summary created late knows all that the stream still has."""
        self.stream.drop_summary(name)
        key = "s" if name == "text" else UNPOSTED.get(name, "k")
        structure = name if name in STRUCTURES else "adaptive"
        self.create(name, key, structure, self.geometry[1][1])

    @rule(warm=st.sampled_from([0, 300, 1000]), most=st.sampled_from([1, 4]))
    def cool(self, warm, most):
        """Tuples leave memory, and nobody can tell."""
        cool(self.stream, self.shelf, warm, most)

    @rule()
    def stop_and_start(self):
        self.stream = restarted(self.stream, self.clock)
        self.summaries = {name: self.stream.summaries[name] for name in self.summaries}

    # --- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def all_agree(self):
        assert check_stream(self.stream) == []
        self.counts_agree()
        self.probes_agree()
        self.every_tuple_is_in_one_cell()
        self.coarse_zones_agree()
        self.no_region_is_missing()
        self.estimates_are_sane()

    def counts_agree(self):
        stream, oracle = self.stream, self.oracle
        assert stream.watermark == oracle.watermark
        assert stream.accepted == self.accepted
        refused = dict(stream.refused)
        assert refused.pop("ceiling_reached", 0) == self.full
        assert refused == dict(oracle.refused)
        live = len(oracle.live())
        for name, summary in self.summaries.items():
            told = summary.describe()
            assert summary.count == told.tuples == live
            assert told.tuples + told.expired == self.received[name]
            assert told.bytes <= told.ceiling
            if told.structure != "none":
                assert sum(z.tuples for z in told.zones) == told.tuples

    def probes_agree(self):
        for window in self.windows:
            expected = self.oracle.join(ASKED, window)
            for name in (*STRUCTURES, "other", "off"):
                assert pairs(self.stream, self.summaries[name], ASKED, window) == expected
            for name in ("text", "text off"):
                assert pairs(self.stream, self.summaries[name], words(ASKED), window) == expected

    def every_tuple_is_in_one_cell(self):
        rows = {a: self.oracle._accepted[a] for a in self.oracle.live()}
        length = self.geometry[0]
        for name, summary in self.summaries.items():
            home = self.homes[name] = contents(self.stream, summary)
            assert home.keys() == rows.keys()
            if summary.state.identity.sizes.structure == "none":
                continue
            for zone in summary.describe().zones:
                times = [rows[a]["ts"] for a, cell in home.items() if cell[:2] == (zone.granularity, zone.zone)]
                assert len(times) == zone.tuples
                assert zone.start <= min(times) <= max(times) < zone.end
                if zone.reason == "ahead":
                    assert min(times) > (self.stream.watermark or 0) + self.stream.lateness
                elif zone.granularity == 1:
                    assert min(times) // length == max(times) // length
                    assert zone.reason in ("error", "behaviour", "maxlength", "boundary", "late", "open")

    def coarse_zones_agree(self):
        for granularity in range(2, self.summaries["grid"].state.identity.geometry.levels + 1):
            expected = self.oracle.zone_counts(granularity)
            for name in ("time", "grid", "adaptive", "text", "other", *UNPOSTED):
                found: dict[int, Counter[int]] = {}
                for arrival, (level, zone, _) in self.homes[name].items():
                    if level == granularity:
                        found.setdefault(zone, Counter())[self.oracle._accepted[arrival]["k"]] += 1
                assert found == expected
                state = self.summaries[name].state
                assert isinstance(state, SummaryState)
                for number, coarse in state.coarse.levels[granularity].items():
                    assert coarse.count == expected[number].total()

    def no_region_is_missing(self):
        for name, summary in self.summaries.items():
            asked = words(ASKED) if summary.key == "s" else ASKED
            home = self.homes[name]
            held = Counter(home.values())
            for window in self.windows:
                flat = summary.regions(asked, window)
                pyramid = summary.regions(asked, window, search="pyramid")
                for column, found in vars(flat).items():
                    np.testing.assert_array_equal(found, getattr(pyramid, column))
                listed = {(r.key, r.granularity, r.zone, r.bucket): r for r in flat}
                assert len(listed) == len(flat)
                truth = Counter(
                    (place, *home[arrival]) for place, arrival in self.oracle.join(ASKED, window) if arrival in home
                )
                assert truth.keys() <= listed.keys()
                assert flat.considered == flat.pruned + len(flat)
                for region in listed.values():
                    cell = (region.granularity, region.zone, region.bucket)
                    assert 0 <= region.lower <= region.estimate <= region.upper <= region.tuples
                    assert name == "none" or region.tuples == held[cell]

    def estimates_are_sane(self):
        for summary in self.summaries.values():
            asked = words(ASKED) if summary.key == "s" else ASKED
            for window in self.windows:
                e = summary.estimate(asked, window)
                assert (e.lower >= 0).all()
                assert (e.lower <= e.value).all()
                assert (e.value <= e.upper).all()
                assert (e.upper <= self.stream.count).all()


Machine.TestCase.settings = settings(
    max_examples=examples(30), stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = pytest.mark.deep("random lives of a store")(Machine.TestCase)
