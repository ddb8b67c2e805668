"""Kinds of counts in summaries: every answer against the tuples themselves, over windows, aging, restarts and joins."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising
from promising.errors import BadCounts
from promising.index import Options, Stream, SummaryIndex
from promising.index.check import check_stream
from promising.index.sketches import window_counts
from promising.index.storage.backup import backup
from promising.index.storage.image import pack_image, unpack_image
from promising.index.storage.verify import verify
from promising.index.summary import SummaryState
from promising.query.join_cardinality import join_size
from promising.query.session import Session
from promising.summaries.cells import CellKind
from promising.summaries.counts import COUNTS, counts_kind
from promising.summaries.hashing import hash_keys
from promising.summaries.moment_cells import MomentCells
from promising.testing import ManualClock
from tests.index.counted import counted, saved_bytes
from tests.index.world import SMALL, columns
from tests.tiers import examples

SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "id": "int", "x": "float"}
KEYS = 40
EVER = 1 << 61
KINDS = sorted(COUNTS)


def made(using: str, structure: str = "adaptive", key: str = "k", options: Options = SMALL, **more: Any) -> Stream:
    settings: dict[str, Any] = {"clock": ManualClock(1 << 50), "seed": 5, "lateness": 150, "keep": 1600, **more}
    stream = Stream("s", SCHEMA, "ts", **settings)
    stream.create_summary("a", key, granularity=100, collapse=(2, 3), structure=structure, options=options, using=using)
    return stream


def fed(stream: Stream, seed: int, until: int = 1500, n: int = 60) -> Stream:
    """Tuples in order of time, some of them late, keys of Zipf's law and of one value in turn."""
    rng, at = np.random.default_rng(seed), stream.accepted
    for first in range(0, until, 100):
        times = np.sort(rng.integers(first, first + 110, n))
        times[-8:] = rng.integers(max(first - 140, 0), first + 10, 8)
        keys = rng.zipf(1.4, n) % KEYS if first % 300 else np.full(n, seed % KEYS)
        stream.append(columns(times, keys, at))
        at += n
    return stream


def truth(stream: Stream, window: tuple[int, int] | None) -> Counter[int]:
    table = stream.take(stream._log.rows(), ["ts", "k"])
    oldest = stream.summaries["a"].state.oldest
    start, end = window or (-EVER, EVER)
    times, keys = table.column("ts").cast("int64").to_pylist(), table.column("k").to_pylist()
    return Counter(key for time, key in zip(times, keys, strict=True) if max(start, oldest) <= time < end)


def asked(summary: SummaryIndex) -> Any:
    return np.arange(KEYS) if summary.key == "k" else columns([0] * KEYS, range(KEYS))["s"]


def from_regions(summary: SummaryIndex, window: tuple[int, int] | None) -> list[np.ndarray]:
    """Sums of what the cells say, without the postings, which cap estimates."""
    found = summary.regions(asked(summary), window)
    return [np.bincount(found.key, part, KEYS) for part in (found.estimate, found.lower, found.upper)]


@settings(max_examples=examples(6))
@given(
    st.integers(0, 999),
    st.sampled_from(KINDS),
    st.sampled_from(["time", "grid", "adaptive"]),
    st.sampled_from(["k", "s"]),
    st.lists(st.tuples(st.integers(-100, 1500), st.integers(1, 900)), max_size=3),
)
def test_bounds_against_the_tuples(seed, using, structure, key, windows):
    """Of the counts that have bounds with certainty, and of EXACT every number; they survive an image to the bit."""
    stream = fed(made(using, structure, key), seed)
    summary = stream.summaries["a"]
    assert check_stream(stream) == []
    again = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 50), seed=5, lateness=150, keep=1600)
    again.restore(unpack_image("x", b"".join(map(bytes, pack_image(stream.image())))))
    for window in (None, *((start, start + length) for start, length in windows)):
        exact = truth(stream, window)
        right = np.array([exact[k] for k in range(KEYS)])
        value, lower, upper = from_regions(summary, window)
        assert (lower <= value).all() and (value <= upper).all()
        if using != "count_sketch":
            assert (upper >= right).all()
        if using == "exact":
            assert (lower <= right).all()
        if window is None:
            assert using == "count_sketch" or (value >= right).all()
            assert using != "exact" or (lower == upper).all()
        capped = summary.estimate(asked(summary), window)
        assert using == "count_sketch" or (capped.upper >= right).all()
        for mine, other in zip(capped, again.summaries["a"].estimate(asked(summary), window), strict=True):
            assert (mine == other).all()
    for one in (stream, again):
        fed(one, seed + 1, 400)
        assert check_stream(one) == []
    states = [one.summaries["a"].state for one in (stream, again)]
    assert all(isinstance(state, SummaryState) for state in states)
    zones = [
        [counted(zone) for level in state.coarse.levels.values() for zone in level.values()]  # type: ignore[union-attr]
        for state in states
    ]
    assert zones[0] == zones[1] != []


@pytest.mark.parametrize("using", KINDS)
def test_a_check_sees_a_count_that_is_wrong(using):
    stream = fed(made(using, "grid"), 3)
    state = stream.summaries["a"].state
    assert isinstance(state, SummaryState)
    zone = state.coarse.levels[2].peekitem(0)[1]
    for kind, counts, at, where in (
        (zone.kind, zone.counts, 0, "G_2, zone"),
        (zone.kind, state.fine.pool.counts, state.fine.blocks.peekitem(0)[1].zones[0].slot, "G_1, zone"),
    ):
        more = kind.allocate(1)
        kind.insert(more, 0, np.array([123]), np.ones(1, np.int32), np.zeros(kind.buckets, np.int64))
        kind.merge(counts, at, more, 0)
        assert any(where in what and "are not those of its tuples" in what for what in check_stream(stream))
        kind.take(counts, at, more, 0)
        assert check_stream(stream) == []


@pytest.mark.parametrize("using", KINDS)
@pytest.mark.parametrize("structure", ["time", "adaptive"])
def test_the_ceiling_holds(using, structure):
    """All keys distinct, the most that counts of every key can take."""
    n = 1 << 13
    options = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=1 << 10, coarse_bits=1 << 10)
    stream = made(using, structure, options=options, max_tuples=n, keep=None)
    limitless = made(using, structure, options=options, keep=None)
    for start in range(0, n, 500):
        batch = columns(np.arange(start, start + 500) // 4, np.arange(start, start + 500), start)
        for one in (stream, limitless) if start + 500 <= n else ():
            one.append(batch)
            one.summaries["a"].regions(np.arange(50))
            told = one.summaries["a"].describe()
            assert told.bytes <= told.ceiling + (one is limitless) * told.tuples * (told.tuple_bytes + told.key_bytes)


@pytest.mark.parametrize("using", KINDS)
def test_join_sizes(using):
    """A count-min never says too few pairs; EXACT knows them, but for zones across an edge, which are in its bounds."""
    for seed in range(8):
        a, b = fed(made(using), seed), fed(made(using, "grid"), seed + 50)
        for window in (None, (300, 1100)):
            found = [window_counts(one.summaries["a"], window) for one in (a, b)]
            assert found[0] is not None and found[1] is not None
            guess = join_size(found[0], found[1])
            assert guess is not None
            counts = [truth(one, window) for one in (a, b)]
            right = sum(n * counts[1][key] for key, n in counts[0].items())
            assert 0 <= guess.lower <= guess.value <= guess.upper
            if using != "count_sketch":
                assert guess.lower <= right <= guess.upper
            if using == "exact" and window is None:
                assert guess.lower == guess.upper == right


@pytest.mark.parametrize("using", KINDS)
def test_what_is_remembered_follows_the_counts_and_what_is_saved_does_not(using):
    kind = counts_kind(using)(4, 3, 8)
    hashes = hash_keys(np.arange(30), 5).view(np.int64)
    cells, ones = np.zeros(4, np.int64), np.ones(30, np.int32)
    key, zone, tuples = np.arange(30), np.zeros(30, np.int64), np.full(30, 1000)
    state, other = kind.allocate(1), kind.allocate(1)
    kind.insert(other, 0, hashes, 5 * ones, cells)
    for change in (
        lambda: kind.insert(state, 0, hashes[:20], ones[:20], cells),
        lambda: kind.merge(state, 0, other, 0),
        lambda: kind.take(state, 0, other, 0),
        lambda: kind.clear(state, 0),
    ):
        before, known = kind.saved(state, 0), saved_bytes(kind.saved(state, 0))
        change()
        assert saved_bytes(before) == known != saved_bytes(kind.saved(state, 0))
        fresh = kind.one(kind.saved(state, 0))
        asked = [kind.estimates(one, hashes, key, zone, kind.bucket_of(hashes), tuples) for one in (state, fresh)]
        assert np.array_equal(asked[0], asked[1])
        assert not list(kind.faults(state, 0, fresh, 0))


def test_counts_of_other_kinds_are_not_compared():
    exact, least = (window_counts(fed(made(using), 1).summaries["a"], None) for using in ("exact", "count_min"))
    assert exact is not None and least is not None
    assert join_size(exact, least) is None


@pytest.mark.parametrize("using", KINDS)
def test_the_memory_of_a_stream_has_the_counts_that_grow_with_tuples(using):
    stream = fed(made(using), 7)
    state = stream.summaries["a"].state
    assert isinstance(state, SummaryState)
    blocks, levels = state.fine.blocks.values(), state.coarse.levels.values()
    held = [state.fine.pool.counts, *(block.whole.counts for block in blocks)]
    held += [zone.counts for zones in levels for zone in zones.values()]
    runs = [run for one in held for runs in one.runs for run in runs] if using == "exact" else []
    grown, tuples = sum(run.nbytes for run in runs), len(stream._log)
    assert stream._summaries.postings_bytes == state.postings.nbytes(tuples) + 4 * tuples + grown
    assert (grown > 0) == (using == "exact") and grown <= tuples * state.identity.sizes.counts.tuple_bytes


def test_exact_counts_are_not_cut_for_an_error_that_they_do_not_have():
    tight = Options(buckets=4, depth=3, width=8, maxlength=2000, tolerance=1.0, filter_bits=256, coarse_bits=512)
    streams = {using: made(using, options=tight, keep=None) for using in KINDS}
    for stream in streams.values():
        for first in range(0, 5000, 1000):
            stream.append(columns(np.full(1000, 50), np.arange(1000) % 7, first))
    cuts = {using: stream.summaries["a"].describe().cuts for using, stream in streams.items()}
    assert cuts["count_sketch"]["error"] > 0 < cuts["count_min"]["error"] and "error" not in cuts["exact"]


# --- on disk, and through changes ---------------------------------------------------------------------------------


def created(session: Session, structure: str = "adaptive") -> None:
    session.execute("CREATE STREAM t (ts TIMESTAMP, k BIGINT, price DOUBLE) TIMESTAMP BY ts KEEP 16 MINUTES")
    for using in KINDS:
        session.execute(
            f"CREATE SUMMARY {using}_s ON t (k) USING {using} WITH GRANULARITY 1 SECONDS AND COLLAPSE (2, 4)"
            f" STRUCTURE {structure} OPTIONS (buckets = 4, depth = 3, width = 8, maxlength = 256)"
        )


def feed(session: Session, number: int) -> None:
    ts = number * 4_000_000 + np.arange(1000) * 5_000
    session.ingest("t", {"ts": ts, "k": np.arange(1000) % KEYS, "price": np.arange(1000) / 7})


def told(session: Session) -> list[Any]:
    return [
        [part.tolist() for part in session.estimate(f"{using}_s", np.arange(KEYS), window)]
        for using in KINDS
        for window in (None, (1_000_000, 9_000_000))
    ]


def usings(session: Session) -> list[str]:
    return [row["using"] for row in session.execute("SHOW SUMMARIES").to_pylist()]  # type: ignore[union-attr]


def test_restarts_backups_and_verify(tmp_path: Path):
    place, copy = tmp_path / "data", tmp_path / "copy"
    with promising.open(place, seed=7) as session:
        created(session)
        for number in range(4):
            feed(session, number)
        known = told(session)
        backup(place, copy)
        statements = session.execute("SHOW SUMMARIES")["statement"].to_pylist()  # type: ignore[index]
    for folder in (place, copy):
        assert [finding for finding in verify(folder) if finding.severity == "error"] == []
        with promising.open(folder, seed=7) as again:
            assert told(again) == known
            assert usings(again) == [using.upper() for using in KINDS]
            assert check_stream(again.stream("t")) == []
    with promising.open() as other:
        other.execute("CREATE STREAM t (ts TIMESTAMP, k BIGINT, price DOUBLE) TIMESTAMP BY ts KEEP 16 MINUTES")
        for statement in statements:
            other.execute(statement)
        assert other.execute("SHOW SUMMARIES")["statement"].to_pylist() == statements  # type: ignore[index]


def test_changes_of_a_summary_leave_its_counts():
    with promising.open(seed=7) as session:
        created(session, "auto")
        feed(session, 0)
        session.execute("ALTER SUMMARY exact_s ADD MEASURES (MOMENTS(price))")
        session.execute("ALTER STREAM t KEEP ALL")
        for using in KINDS:
            session.summary(f"{using}_s").index.change("grid")
        feed(session, 1)
        assert usings(session) == [using.upper() for using in KINDS]
        assert check_stream(session.stream("t")) == []


@pytest.mark.parametrize("using", KINDS)
def test_expiry_subtracts_nothing(using, monkeypatch):
    """Zones expire whole, so kinds that cannot subtract are as good as the others."""

    def never(*_: Any) -> None:
        raise AssertionError("subtracted")

    for cls in (CellKind, MomentCells, *map(counts_kind, KINDS)):
        monkeypatch.setattr(cls, "subtract", never)
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 50), seed=5, keep=1600)
    measures = ["moments(x)", "quantiles(x)", "distinct(s)", "frequent(s)", "histogram(x, 0, 9)", "sample(4)"]
    stream.create_summary("a", "k", granularity=100, collapse=(2, 3), options=SMALL, using=using, measures=measures)
    fed(stream, 1, 6000)
    assert stream.summaries["a"].describe().expired > 0
    assert check_stream(stream) == []


@pytest.mark.parametrize(
    ("using", "structure", "said"),
    [
        ("tea", "grid", "unknown kind of counts 'TEA'; there are COUNT_SKETCH, COUNT_MIN, EXACT"),
        ("", "grid", "unknown kind of counts ''"),
        (7, "grid", "unknown kind of counts 7"),
        ("exact", "none", "STRUCTURE none has no cells to count in; leave USING EXACT out"),
    ],
)
def test_what_cannot_count_is_refused_and_nothing_is_made(using, structure, said):
    stream = Stream("s", SCHEMA, "ts")
    with pytest.raises(BadCounts, match=said):
        stream.create_summary("a", "k", granularity=100, structure=structure, using=using)
    assert not stream.summaries
