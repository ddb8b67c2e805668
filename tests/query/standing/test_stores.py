"""Every store against a plain dict: what is live, what ended, what came since, and that memory comes back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promising.errors import NotContained
from promising.index.instants import NEVER
from promising.query.standing.stores import Calendar, HashStore, IndexedCalendar, Ring, ScanStore, Store, store_for
from tests.tiers import examples

pytestmark = pytest.mark.kernel

NAMES = ("ring", "calendar", "indexed calendar", "hash", "scan")
WINDOW = 1_000


def rows(numbers, width):
    """Ids that differ in the last column most of all, so that a store which reads only the first one is found out."""
    numbers = np.asarray(numbers, np.int64).reshape(-1)
    return np.stack([numbers // 7 ** (width - 1 - w) if w < width - 1 else numbers for w in range(width)], axis=1)


def content(store: Store):
    ids, exp, born = store.live()
    assert ids.dtype == exp.dtype == born.dtype == np.int64
    assert ids.shape == (len(store), store.width)
    return sorted((*i, e, b) for i, e, b in zip(ids.tolist(), exp.tolist(), born.tolist(), strict=True))


class Stores(RuleBasedStateMachine):
    """All stores of one width at once. The hash is told of every death."""

    @initialize(
        width=st.integers(1, 4),
        window=st.sampled_from([None, 1, 10, WINDOW]),
        slot=st.sampled_from([1, 7, 100, 10_000]),
        parts=st.sampled_from([1, 3, 50]),
        start=st.sampled_from([0, -5_000, 1 << 50]),
    )
    def begin(self, width, window, slot, parts, start):
        self.width = width
        self.now = start
        self.tick = 0
        self.number = 0
        self.held: dict[int, tuple[int, int]] = {}
        self.hash = HashStore(width)
        self.others = [
            *(store_for(name, width, window, slot) for name in NAMES if name != "hash"),
            Calendar(width, window, parts=parts),
            IndexedCalendar(width, window, parts=parts),
        ]

    @property
    def stores(self) -> list[Store]:
        return [self.hash, *self.others]

    @rule(
        ahead=st.lists(
            st.one_of(st.integers(1, 40), st.integers(-300, 0), st.integers(1, 2 * WINDOW), st.just(NEVER)),
            min_size=0,
            max_size=30,
        ),
        ordered=st.booleans(),
        strided=st.booleans(),
    )
    def insert(self, ahead, ordered, strided):
        self.tick += 1
        exp = np.array([a if a == NEVER else self.now + a for a in ahead], np.int64)
        if ordered:
            exp.sort()
        numbers = np.arange(self.number, self.number + len(exp))
        self.number += len(exp)
        ids = rows(numbers, self.width)
        if strided:
            ids, exp = np.asfortranarray(ids), np.repeat(exp, 2)[::2]
        for store in self.stores:
            store.insert(ids, exp, self.tick)
        self.held.update({n: (e, self.tick) for n, e in zip(numbers.tolist(), exp.tolist(), strict=True)})

    @rule(on=st.one_of(st.integers(0, 5), st.integers(0, 3 * WINDOW)))
    def expire(self, on):
        self.now += on
        ended = [n for n, (exp, _) in self.held.items() if exp <= self.now]
        for n in ended:
            del self.held[n]
        for store in self.others:
            assert store.expire(self.now) == len(ended), store.name
        assert self.hash.expire(self.now) == 0
        assert self.hash.remove(rows(ended, self.width)) == len(ended)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data):
        gone = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, max_size=20))
        for n in gone:
            del self.held[n]
        for store in self.stores:
            assert store.remove(rows(gone, self.width)) == len(gone)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), repeated=st.booleans())
    def remove_what_is_not_there(self, data, repeated):
        gone = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[gone]
        wrong = gone if repeated else self.number + 1
        for store in self.stores:
            with pytest.raises(NotContained, match=rf"1 of the results .*\b{wrong}\b"):
                store.remove(rows([gone, wrong], self.width))

    @rule(back=st.integers(0, 3))
    def since(self, back):
        tick = self.tick - back
        expected = sorted(
            (*i, self.held[n][0]) for n in self.held for i in rows([n], self.width).tolist() if self.held[n][1] > tick
        )
        for store in self.stores:
            ids, exp = store.since(tick)
            assert sorted((*i, e) for i, e in zip(ids.tolist(), exp.tolist(), strict=True)) == expected, store.name

    @invariant()
    def as_the_dict(self):
        if not hasattr(self, "held"):
            return
        numbers = list(self.held)
        expected = sorted((*i, *self.held[n]) for n, i in zip(numbers, rows(numbers, self.width).tolist(), strict=True))
        for store in self.stores:
            assert content(store) == expected, store.name

    @invariant()
    def memory_is_that_of_what_is_live(self):
        if hasattr(self, "held"):
            for store in self.stores:
                entry = 8 * (self.width + 2) + 16
                assert store.nbytes <= 16 * entry * (len(store) + 32), store.name


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("name", NAMES)
def test_memory_comes_back_and_entries_are_still_found(name):
    store = store_for(name, 2, WINDOW, 10)
    empty = store.nbytes
    exp = np.arange(1, 1_001)
    store.insert(rows(exp, 2), exp, 1)
    full = store.nbytes
    assert full > 10 * empty
    if name == "hash":
        store.remove(rows(exp[:-3], 2))
    store.expire(997)
    assert len(store) == 3
    assert store.nbytes < full / 10
    assert store.remove(rows(exp[-3:-1], 2)) == 2
    assert content(store) == [(142, 1000, 1000, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_what_never_ends_is_not_looked_at_but_by_a_scan(name):
    store = store_for(name, 1, None)
    store.insert(rows(np.arange(50), 1), np.full(50, NEVER), 1)
    before = store.touches
    for now in (0, 1 << 40, NEVER - 1):
        assert store.expire(now) == 0
    assert store.touches - before == {"scan": 150, "ring": 3}.get(name, 0)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_nothing_out(name):
    store = store_for(name, 3, WINDOW)
    store.insert(np.empty((0, 3), np.int64), np.empty(0, np.int64), 1)
    assert store.expire(5) == 0
    assert store.remove(np.empty((0, 3), np.int64)) == 0
    assert content(store) == []
    assert store.touches == 0
    assert [part.shape for part in store.since(0)] == [(0, 3), (0,)]
    with pytest.raises(ValueError, match=r"\(1, 2\), not \(n, 3\)"):
        store.insert(np.zeros((1, 2), np.int64), np.ones(1, np.int64), 1)


def test_live_gives_copies():
    for name in NAMES:
        store = store_for(name, 1, WINDOW)
        store.insert(rows([1, 2], 1), np.array([5, 6]), 1)
        for part in (*store.live(), *store.since(0)):
            part[:] = 0
        assert content(store) == [(1, 5, 1), (2, 6, 1)]


def flow(store, window, ticks, each=1):
    """As many results each tick as `each`, all with another end within the window; touches after it is full."""
    rng = np.random.default_rng(1)
    for tick in range(ticks):
        if tick == window:
            store.before = store.touches
        store.expire(tick)
        numbers = np.arange(tick * each, (tick + 1) * each)
        store.insert(rows(numbers, 2), tick + rng.integers(1, window + 1, each), tick)
    return (store.touches - store.before) / (ticks - window) / each


@pytest.mark.parametrize("parts", [1, 10, 100])
def test_an_expiry_looks_at_one_slot_of_the_calendar(parts):
    """Each tick about one slot's share of what is live, and one look for the way in."""
    store = Calendar(2, 100, parts=parts)
    touched = flow(store, 100, 300)
    assert touched <= 1 + len(store) / parts * 2.5 + 2
    assert touched >= 2


def test_touches_do_not_depend_on_the_run():
    for _ in range(2):
        assert flow(IndexedCalendar(2, 50, 1), 50, 120, 3) == flow(IndexedCalendar(2, 50, 1), 50, 120, 3)


@pytest.mark.parametrize("make", [lambda: Calendar(2, 200, 1), lambda: IndexedCalendar(2, 200, 1)])
def test_slots_as_short_as_a_tick_make_both_ways_constant(make):
    assert flow(make(), 200, 600, 4) < 6


@given(lateness=st.lists(st.integers(0, 30), min_size=1, max_size=60))
@settings(max_examples=examples(40), deadline=None)
def test_a_ring_is_cheap_in_order_and_right_out_of_order(lateness):
    ring, scan = Ring(1, 50, 1), ScanStore(1)
    for tick, late in enumerate(lateness):
        for store in (ring, scan):
            store.insert(rows([tick], 1), np.array([tick + 50 - late]), tick)
        assert ring.expire(tick) == scan.expire(tick)
        assert content(ring) == content(scan)


def test_a_ring_in_order_looks_at_each_entry_a_few_times():
    ring = Ring(1, 100, 1)
    for tick in range(1_000):
        ring.expire(tick)
        ring.insert(rows([tick], 1), np.array([tick + 100]), tick)
    assert len(ring) == 100
    assert ring.touches <= 4 * 1_000


def test_an_index_finds_what_a_calendar_looks_for():
    """Of 1,000 results one in the middle goes before its time."""
    touched = {}
    for store in (Calendar(2, WINDOW, 10), IndexedCalendar(2, WINDOW, 10), HashStore(2)):
        exp = np.arange(1, 1_001)
        store.insert(rows(exp, 2), exp, 1)
        before = store.touches
        store.remove(rows([500], 2))
        touched[store.name] = store.touches - before
    assert touched["calendar"] == 500
    assert touched["indexed calendar"] == touched["hash"] <= 6


def test_what_is_late_by_more_than_a_slot_still_ends():
    for store in (Calendar(1, WINDOW, 10), IndexedCalendar(1, WINDOW, 10), Ring(1, WINDOW, 10)):
        store.insert(rows([1], 1), np.array([1_900]), 1)
        store.expire(1_000)
        store.insert(rows([2, 3], 1), np.array([500, 1_001]), 2)
        assert store.expire(1_000) == 1
        assert store.expire(1_001) == 1
        assert content(store) == [(1, 1_900, 1)]


def test_a_calendar_has_slots():
    for slot, parts in ((0, None), (10, 0)):
        with pytest.raises(ValueError, match="slots"):
            Calendar(1, WINDOW, slot, parts)
