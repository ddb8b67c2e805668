"""`check_stream` is silent about every stream that is well, and finds whatever is changed in one behind its back."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

import promising.index.check.log
import promising.index.check.zones
from promising.errors import DataDamaged
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.check.log import check_chunks
from promising.index.chunks import Heap
from promising.index.regions import Appended
from promising.index.schema import Column
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, STRUCTURES, columns, small_chunks

GRANULARITY, RATE, DEPTH = 40, 2, 4
KEEP = 32 * GRANULARITY
NOW = 100_000


def new_stream(lateness=0, room=20_000, depth=DEPTH, **options):
    stream = Stream("s", SCHEMA, "ts", lateness=lateness, clock=ManualClock(10**9), max_tuples=room, keep=KEEP, seed=5)
    sizes = replace(SMALL, **options)
    for structure in STRUCTURES:
        stream.create_summary(
            structure, "k", granularity=GRANULARITY, collapse=(RATE, depth), structure=structure, options=sizes
        )
    stream.create_summary("text", "s", granularity=2 * GRANULARITY, collapse=(3, 2), options=sizes)
    off = replace(sizes, postings=False)
    stream.create_summary("off", "k", granularity=GRANULARITY, collapse=(RATE, depth), options=off)
    return stream


def feed(stream, seed, batches, pace=0.05, late=0.2):
    rng = np.random.default_rng(seed)
    newest = NOW if stream.latest is None else stream.latest
    for number in range(1, batches + 1):
        n = int(rng.integers(1, 600))
        times = newest + np.cumsum(rng.exponential(pace, n)).astype(np.int64)
        newest = int(times[-1])
        times -= (rng.random(n) < late) * rng.integers(0, 9 * GRANULARITY, n)
        keys = rng.zipf(1.4, n) % 50 + 7 * (number // 5)
        stream.append(columns(times, keys, stream.accepted), producer="till", sequence=number)


def warm_up(stream):
    """Fill what is worked out when first asked for: borders of cells, F2, pyramids."""
    for summary in stream.summaries.values():
        keys = np.arange(50) if summary.key == "k" else [str(k) for k in range(50)]
        summary.regions(keys, search="pyramid")
        if summary.structure != "none":
            for zone in summary.describe().zones[::2]:
                summary.visit((zone.granularity, zone.zone, 0))


@pytest.fixture
def stream(monkeypatch):
    """A stream with zones of every kind: sealed, open, aside, of three coarse granularities, with tuples aged out."""
    small_chunks(monkeypatch, 512)
    made = new_stream(lateness=60)
    feed(made, 1, 50, pace=0.03)
    warm_up(made)
    return made


class Shelf:
    """Cold columns kept in memory; a run or column in `gone` cannot be read."""

    footer_bytes = 0

    def __init__(self) -> None:
        self.runs: dict[int, dict[str, Column]] = {}
        self.gone: set[int | str] = set()

    def column(self, run, name, offsets):
        if run in self.gone or name in self.gone:
            raise DataDamaged(f"run {run} is missing")
        column = self.runs[run][name]
        return Column(
            None if column.values is None else column.values[offsets],
            None if column.text is None else column.text.take(offsets),
            None if column.nulls is None else column.nulls[offsets],
        )


def cool(stream, run, chunks):
    """Let the oldest warm chunks go cold, whatever their age."""
    with stream.reading() as log:
        if log.reader is None:
            log.reader = Shelf()
        found = log.coolable(1 << 62, 0, chunks)
        log.reader.runs[run] = log.columns_of(found)
        assert log.cool(run, found)


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_that_is_well(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    small_chunks(monkeypatch, int(rng.choice([64, 512, 16384])))
    monkeypatch.setattr(promising.index.check.log, "SLICE", 700)  # zones and chunks of more than one slice
    monkeypatch.setattr(promising.index.check.zones, "SLICE", 100)
    stream = new_stream(
        lateness=int(rng.choice([0, 7, 90])),
        depth=int(rng.integers(1, 5)),
        probes=int(rng.integers(1, 3)),
        maxlength=int(rng.choice([256, 2000])),
        tolerance=float(rng.choice([0.5, 4.0, 1000.0])),
    )
    assert check_stream(stream) == []
    for round_ in range(4):
        feed(stream, 10 * seed + round_, 6, pace=float(rng.choice([0.02, 0.3])), late=float(rng.choice([0.0, 0.5])))
        if round_ == 1:
            warm_up(stream)
        if round_ == 2:
            stream.advance(stream.latest + int(rng.integers(1, 500)))
            stream.drop_summary("grid")
            stream.create_summary("late", "k", granularity=30, collapse=(3, 2), options=SMALL)
        assert check_stream(stream) == []


def test_everything_has_aged_out(stream):
    stream.advance(stream.latest + 10**6)
    assert check_stream(stream) == []
    feed(stream, 3, 3)  # all too old
    assert check_stream(stream) == []


def test_cold_tuples(stream):
    cool(stream, 0, 3)
    cool(stream, 1, 2)
    assert check_stream(stream) == []
    feed(stream, 5, 5)
    assert check_stream(stream) == []
    with stream.reading() as log:
        log.reader.gone.add(1)
    found = check_stream(stream)
    assert any("run 1 is missing" in what and "chunk at row" in what for what in found)


def test_cold_keys_that_cannot_be_read(stream):
    """Zones that have some of them are named, the others are checked all the same."""
    cool(stream, 0, len(stream._log._chunks) - 1)
    coarse(stream, 2).counts.counters[0, 0] += 1
    with stream.reading() as log:
        log.reader.gone.add("k")
    found = check_stream(stream)
    zones = {what.split(": ")[0] for what in found if "cannot be read" in what and "zone" in what}
    names = ("time", "grid", "adaptive", "off")
    assert {what.split(",")[0] for what in zones} == {f"summary '{name}'" for name in names}
    assert {what.split(",")[1] for what in zones} >= {" G_1", " G_2", " G_4"}
    assert any("(late)" in what for what in zones)
    assert not any("'text'" in what for what in found)


def test_neither_true_nor_false():
    stream = Stream("s", {"ts": "timestamp", "b": "bool"}, "ts")
    stream.append({"ts": [1, 2], "b": [True, False]})
    assert check_stream(stream) == []
    stream._log._columns["b"].array[1] = 2
    assert check_stream(stream) == ["the log, chunk at row 0, column 'b': a value is neither true nor false"]


@pytest.mark.parametrize("kind", ["live", "place", "open", "strings"])
def test_where_cold_tuples_are(kind, stream):
    cool(stream, 7, 3)
    tiers, at = stream._log._tiers, chunk(stream, 0).start // 512
    if kind == "live":
        tiers.live[7] = 5
    elif kind == "place":
        tiers.place[at] = tiers.place[chunk(stream, 2).start // 512]
    elif kind == "open":
        last = stream._log._chunks[-1].start // 512
        tiers.run[last], tiers.place[last], tiers.live[7] = 7, 3 * 512, 4
    else:
        stream._log._heaps["s"][chunk(stream, 0).start] = Heap(512)
    said = {"live": "counts other chunks", "place": "at one place", "open": "strings of", "strings": "strings of"}
    with stream.reading() as log:
        assert any(said[kind] in what for what in check_chunks(log))


# --- damage ------------------------------------------------------------------------------------------------------


def fine(stream, name="adaptive"):
    return stream.summaries[name].state.fine


def sealed(stream, name="adaptive"):
    return next(z for b in fine(stream, name).blocks.values() for z in b.zones)


def some_block(stream):
    return next(b for b in fine(stream).blocks.values() if b.zones)


def aside(stream):
    return next(b for b in fine(stream).blocks.values() if b.aside)


def coarse(stream, granularity, name="adaptive"):
    return stream.summaries[name].state.coarse.levels[granularity].peekitem(0)[1]


def chunk(stream, place=1):
    return stream._log._chunks[place]


def shift_time(stream):
    at = chunk(stream)
    stream._log._columns["ts"].array[at.start + 3] += 10**9


def change_key(stream):
    state = stream.summaries["adaptive"].state
    stream._log._columns["k"].array[coarse(stream, 2).tuples.rows[0]] ^= 1
    return state


def lose_row(stream):
    zone = sealed(stream)
    zone.tuples._rows = zone.tuples._rows[1:]


def swap_rows(stream):
    """A row of one zone is replaced by one of another."""
    zones = [z for b in fine(stream, "grid").blocks.values() for z in b.zones]
    zones[0].tuples._rows[0] = zones[-1].tuples.rows[0]


def outside(stream):
    sealed(stream).tuples._rows[0] = stream._log.capacity + 5


def negative(stream):
    sealed(stream).tuples._rows[0] = -1


def cells_out_of_order(stream):
    zone = next(z for b in fine(stream, "grid").blocks.values() for z in b.zones if z.tuples.starts is not None)
    zone.tuples._rows = zone.tuples._rows[::-1].copy()


def borders(stream):
    zone = next(z for b in fine(stream, "grid").blocks.values() for z in b.zones if z.tuples.starts is not None)
    zone.tuples.starts[1] = 10**6


def wrong_granularity(stream):
    """A zone of G_2 is kept as one of G_3 would be."""
    levels = stream.summaries["adaptive"].state.coarse.levels
    number, zone = levels[2].popitem()
    levels[3][number] = zone


def drop_zone(stream):
    stream.summaries["grid"].state.coarse.levels[3].popitem(0)


def filter_bit_lost(stream):
    zone = sealed(stream)
    pool = fine(stream).pool
    words = pool.sliced[zone.slot // 64]
    at = np.flatnonzero(words & (np.uint64(1) << np.uint64(zone.slot % 64)))[0]
    words[at] &= ~(np.uint64(1) << np.uint64(zone.slot % 64))


def filter_bit_of_nobody(stream):
    block = next(b for b in fine(stream).blocks.values() if b.zones)
    fine(stream).pool.sliced[block.groups[-1]][0] |= np.uint64(1) << np.uint64(63)


def pyramid(stream):
    block = next(b for b in fine(stream).blocks.values() if b.pyramid)
    next(iter(block.pyramid.values())).bits[0] ^= 1


def posting_chain(stream):
    postings = stream.summaries["adaptive"].state.postings
    newest = stream._log.rows()[-40:]
    postings._older[newest] = newest[0]


def posting_count(stream):
    postings = stream.summaries["adaptive"].state.postings
    line = np.flatnonzero(postings._small[:, 2] > 1)[0]
    postings._small[line, 2] -= 1


def posting_newest(stream):
    postings = stream.summaries["adaptive"].state.postings
    line = np.flatnonzero(postings._small[:, 2] > 1)[0]
    postings._small[line, 3] = postings._older[postings._small[line, 3]]


def posting_key(stream):
    postings = stream.summaries["adaptive"].state.postings
    line = np.flatnonzero(postings._small[:, 2])[0]
    postings._entries[line, 0] ^= 1 << 3


def posting_tag(stream):
    postings = stream.summaries["adaptive"].state.postings
    postings._tags[np.flatnonzero(postings._tags)[0]] = 0


def posting_most(stream):
    stream.summaries["adaptive"].state.postings._heads[3] = 1


def posting_full(stream):
    """A directory without an empty line would be searched for ever."""
    postings = stream.summaries["adaptive"].state.postings
    postings._small[:, 2] = np.maximum(postings._small[:, 2], 1)
    postings._tags[:] = ((postings._entries[:, 0] >> 48) & 255) | 1


def open_zone_of_key(stream):
    postings = stream.summaries["adaptive"].state.postings
    postings._small[np.flatnonzero(postings._small[:, 4] == fine(stream).number)[0], 4] = 0


def ledger_many(stream):
    known = stream._ledger.named.producers["till"]
    for number in range(1000, 1300):
        known.batches[number] = Appended(1)


def ledger_kind(stream):
    stream._ledger.anonymous.add("till 2", stream._ledger.named.producers["till"])


def free_twice(stream):
    stream._log._free.append(stream._log._free[0])


def chunk_lost(stream):
    chunks = list(stream._log._chunks)
    del chunks[1]
    stream._log._chunks = deque(chunks)


def group_twice(stream):
    fine(stream).pool._free.append(fine(stream).pool._free[0])


def other_slot(stream):
    block = next(b for b in fine(stream).blocks.values() if len(b.zones) > 1)
    block.zones[0].slot, block.zones[1].slot = block.zones[1].slot, block.zones[0].slot


def whole_of_other(stream):
    blocks = [b for b in fine(stream).blocks.values() if b.zones]
    blocks[0].whole.number += 1


def same_number(stream):
    zones = [z for b in fine(stream).blocks.values() for z in b.zones]
    zones[0].number = zones[1].number


def string_offsets(stream):
    strings = stream._log._coded["s"].dictionary
    strings._arena[: strings._ends[len(strings)]] = 0xFF


def null_key(stream):
    stream._log._may_be_null("k")
    stream._log._nulls["k"].array[stream._log.rows()[-1]] = 1


def bump(get):
    """Damage that adds one to the first place of an array."""

    def damage(stream):
        get(stream).reshape(-1)[0] += 1

    return damage


def put(get, name, change):
    """Damage that changes an attribute."""

    def damage(stream):
        owner = get(stream)
        setattr(owner, name, change(getattr(owner, name)))

    return damage


HELD: list[Stream] = []  # the stream that is damaged

DAMAGES = {
    "accepted": (put(lambda s: s, "accepted", lambda n: n + 1), "accepted"),
    "watermark back": (put(lambda s: s, "progress", lambda p: p._replace(watermark=p.watermark - 500)), "watermark"),
    "floor ahead": (put(lambda s: s, "_floor", lambda f: f + 10**6), "floor"),
    "latest gone": (put(lambda s: s, "latest", lambda t: None), "latest"),
    "keys of the stream": (put(lambda s: s._summaries, "keys", lambda k: frozenset()), "keys"),
    "geometries of the stream": (put(lambda s: s._summaries, "geometries", lambda g: set()), "granularities"),
    "refused": (lambda s: s._refused.update(too_old=-4), "refused -4"),
    "ledger: batches": (ledger_many, "ledger, producer 'till'"),
    "ledger: kind": (ledger_kind, "producers of another kind"),
    "ledger: held": (put(lambda s: s._ledger.named, "held", lambda n: n + 1), "the ledger has"),
    "ledger: epoch": (put(lambda s: s._ledger.named.producers["till"], "epoch", lambda n: -1), "the epoch -1"),
    "ledger: forgotten": (put(lambda s: s._ledger.named.producers["till"], "forgotten", lambda n: 10**6), "forgotten"),
    "ledger: number": (lambda s: s._ledger.named.producers["till"].batches.update({-2: Appended(1)}), "ledger"),
    "ledger: answer": (lambda s: s._ledger.named.producers["till"].batches.update({600: Appended(-1)}), "answered"),
    "chunk: free twice": (free_twice, "chunks in use and those free"),
    "chunk: lost": (chunk_lost, "chunks in use and those free"),
    "chunk: rows": (put(chunk, "used", lambda n: n - 1), "the log counts"),
    "chunk: none": (put(chunk, "used", lambda n: 0), "a full one"),
    "chunk: base": (put(chunk, "base", lambda n: n + 1), "arrival"),
    "chunk: edges": (put(chunk, "latest", lambda t: t + 1), "edges in time"),
    "chunk: table": (lambda s: s._log._used.__setitem__(chunk(s).start // 512, 3), "table of chunks"),
    "chunk: arrivals": (put(lambda s: s._log, "arrived", lambda n: n + 3), "have arrived"),
    "log: string bytes": (put(lambda s: s._log, "_heap_bytes", lambda n: n + 1), "bytes of strings"),
    "log: rows of a string": (bump(lambda s: s._log._coded["s"].dictionary._refs), "counts other rows"),
    "log: a code": (lambda s: s._log._coded["s"].array.fill(1 << 20), "not in its dictionary"),
    "log: codes": (bump(lambda s: s._log._coded["s"]._used), "more or fewer codes"),
    "log: strings": (string_offsets, "column 's'"),
    "log: a heap is gone": (lambda s: s._log._coded["s"]._used.fill(-1), "strings of chunks"),
    "log: a time": (shift_time, "its tuples are from"),
    "log: a key": (change_key, "G_2, zone"),
    "log: a null key": (null_key, "no 'k', its key"),
    "zone: counters": (bump(lambda s: fine(s).pool.counts.counters[sealed(s).slot]), "G_1, zone"),
    "zone: cells": (bump(lambda s: fine(s).pool.cells[sealed(s).slot]), "cells are counted wrong"),
    "zone: a bit less": (filter_bit_lost, "filter lacks 1 bits"),
    "zone: a bit of nobody": (filter_bit_of_nobody, "zones that are not there"),
    "zone: first": (put(sealed, "first", lambda t: t - 1), "G_1, zone"),
    "zone: pool's first": (bump(lambda s: fine(s).pool.first[sealed(s).slot :]), "another zone's"),
    "zone: F2": (
        lambda s: (fine(s).pool.counts.known.fill(True), fine(s).pool.counts.derived[sealed(s).slot].fill(-1)),
        "F2",
    ),
    "zone: a row lost": (lose_row, "in no zone"),
    "zone: a row of another": (swap_rows, "another zone has"),
    "zone: a row outside": (outside, "hold no tuple"),
    "zone: a row before all": (negative, "hold no tuple"),
    "zone: count": (put(lambda s: sealed(s).tuples, "_count", lambda n: n + 1), "names"),
    "zone: cells out of order": (cells_out_of_order, "wrong cell"),
    "zone: borders": (borders, "borders"),
    "zone: slots": (other_slot, "slot"),
    "zone: number": (same_number, "one number"),
    "zone: groups": (group_twice, "groups of zones"),
    "zone: count of zones": (put(fine, "_zones", lambda n: n + 1), "sealed zones"),
    "zone: cuts": (lambda s: fine(s).cuts.clear(), "fewer cuts"),
    "zone: not sealed": (lambda s: fine(s).pool.sealed.__setitem__(sealed(s).slot, 0), "sealed"),
    "block: number": (whole_of_other, "calls itself block"),
    "block: counters": (bump(lambda s: some_block(s).whole.counts.counters[0]), "G_1, block"),
    "block: bits": (lambda s: some_block(s).whole.bits.fill(255), "G_1, block"),
    "block: history": (bump(lambda s: some_block(s).whole.taken[:, 1:]), "took in"),
    "block: tuples of its own": (
        put(lambda s: some_block(s).whole, "tuples", lambda t: sealed(HELD[0]).tuples),
        "tuples of its own",
    ),
    "block: groups": (lambda s: some_block(s).groups.append(0), "groups"),
    "aside: hashes": (bump(lambda s: aside(s).aside_hashes), "hashes"),
    "aside: too many": (put(aside, "aside", lambda n: n + 10**6), "which cannot be"),
    "aside: forgotten": (put(aside, "aside", lambda n: n - 1), "in no zone"),
    "pyramid": (pyramid, "pyramid"),
    "pyramid: place": (lambda s: some_block(s).pyramid.update({(3, 1): None}), "where none can be"),
    "open: key sizes": (bump(lambda s: fine(s)._counts), "keys, or how often"),
    "open: signed": (bump(lambda s: fine(s)._signed), "signed counters"),
    "open: recent": (bump(lambda s: fine(s)._recent), "watches"),
    "open: squares": (bump(lambda s: fine(s)._state[2:]), "sums of squares"),
    "open: reference": (lambda s: fine(s)._state.__setitem__(3, -1), "refers to"),
    "open: count": (bump(lambda s: fine(s)._state), "cannot be"),
    "open: block": (put(fine, "open_block", lambda b: None), "no block"),
    "open: rows": (lambda s: fine(s)._rows.__setitem__(0, -7), "outside the log"),
    "coarse: counters": (bump(lambda s: coarse(s, 2).counts.counters[0]), "G_2, zone"),
    "coarse: cells": (bump(lambda s: coarse(s, 3).cells), "G_3, zone"),
    "coarse: bits": (lambda s: coarse(s, 3).bits.fill(0), "filter lacks"),
    "coarse: last": (put(lambda s: coarse(s, 4), "last", lambda t: t + 1), "G_4, zone"),
    "coarse: start": (put(lambda s: coarse(s, 4), "start", lambda t: t + 1), "calls itself zone"),
    "coarse: spans": (bump(lambda s: coarse(s, 3).spans), "by span of time"),
    "block: spans": (bump(lambda s: some_block(s).whole.spans), "by span of time"),
    "open: block of the reference": (lambda s: fine(s)._state.__setitem__(6, 99), "newer part"),
    "coarse: F2": ((lambda s: (coarse(s, 2).counts.known.fill(True), coarse(s, 2).counts.derived.fill(-1))), "F2"),
    "coarse: history": (bump(lambda s: coarse(s, 2).taken[:, 1:]), "took in"),
    "coarse: granularity": (wrong_granularity, "another granularity"),
    "coarse: dropped": (drop_zone, "in no zone"),
    "summary: watermark": (put(lambda s: s.summaries["grid"].state, "watermark", lambda w: w + 1), "watermark"),
    "summary: horizons": (put(lambda s: s.summaries["none"].state, "horizons", lambda h: h[1:]), "horizons"),
    "summary: expired": (put(lambda s: s.summaries["time"].state, "expired", lambda n: -1), "aged out of it"),
    "postings: chain": (posting_chain, "next older"),
    "postings: count": (posting_count, "more or fewer rows"),
    "postings: newest": (posting_newest, "newest row"),
    "postings: key": (posting_key, "postings"),
    "postings: tag": (posting_tag, "tag"),
    "postings: most": (posting_most, "no key is said"),
    "postings: full": (posting_full, "directory of"),
    "postings: keys": (bump(lambda s: s.summaries["text"].state.postings._heads), "'text', postings"),
    "postings: open zone": (open_zone_of_key, "counted for the open zone"),
}


@pytest.mark.deep("damages a stream in many ways")
@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found(kind, stream):
    assert check_stream(stream) == []
    damage, said = DAMAGES[kind]
    HELD[:] = [stream]
    damage(stream)
    found = check_stream(stream)
    assert any(said in what for what in found), found
