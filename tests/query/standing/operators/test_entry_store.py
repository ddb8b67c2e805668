"""Entries against a plain dict: whatever is done to them, in whatever order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from promising.index.instants import NEVER
from promising.query.standing.operators.entry_store import LEAST, Coder, Entries
from tests.tiers import examples

pytestmark = pytest.mark.kernel


class AgainstADict(RuleBasedStateMachine):
    """Keys are (a, b); each entry has (ts, exp, code, extra, note)."""

    def __init__(self):
        super().__init__()
        self.entries = Entries(2, 8, True)
        self.extra = self.entries.extra(np.int64)
        self.held: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        self.now = 0
        self.next = 0
        self.codes = 3

    @rule(
        rows=st.lists(st.tuples(st.integers(1, 40) | st.just(100_000) | st.none(), st.integers(0, 5)), max_size=30),
        times=st.integers(1, 12),
    )
    def insert(self, rows, times):
        rows = rows * times
        self.codes = max([self.codes, *(code + 1 for _, code in rows)])
        self.entries.codes(self.codes)
        ids, exp, codes = [], [], []
        for life, code in rows:
            ids.append((self.next % 7, self.next))
            exp.append(NEVER if life is None else self.now + life)
            codes.append(code)
            self.next += 1
        places = self.entries.insert(
            np.array(ids, np.int64).reshape(-1, 2),
            np.full(len(rows), self.now),
            np.array(exp, np.int64),
            np.array(codes, np.int32),
        )
        extras = np.arange(len(rows)) + self.now
        self.entries.extras[self.extra][places] = extras
        self.entries.notes[places] = codes
        for key, end, code, extra in zip(ids, exp, codes, extras.tolist(), strict=True):
            self.held[key] = (self.now, end, code, extra, code)

    @rule(more=st.integers(0, 30) | st.just(20_000))
    def expire(self, more):
        self.now += more
        places = self.entries.expire(self.now)
        ended = {tuple(row) for row in self.entries.ids[places].tolist()}
        assert ended == {key for key, held in self.held.items() if held[1] <= self.now}
        assert self.entries.codes_at(places).tolist() == [
            self.held[tuple(k)][2] for k in self.entries.ids[places].tolist()
        ]
        for key in ended:
            del self.held[key]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data):
        share = data.draw(st.sampled_from([1, 2, 10]))
        first = data.draw(st.integers(0, share - 1))
        keys = sorted(self.held)[first::share]
        places = self.entries.remove(np.array(keys, np.int64).reshape(-1, 2))
        assert [tuple(row) for row in self.entries.ids[places].tolist()] == keys
        for key in keys:
            del self.held[key]

    @rule()
    def remove_what_is_not_there(self):
        with pytest.raises(KeyError, match="was retracted, but is not held"):
            self.entries.remove(np.array([[-1, -1]]))

    @rule()
    def shrink(self):
        before = {tuple(self.entries.ids[place].tolist()): place for place in self.entries.all()}
        moved = self.entries.shrink()
        if moved is not None:
            assert len(self.entries.ids) <= max(LEAST, 2 * len(before))
            for key, place in before.items():
                assert tuple(self.entries.ids[moved[place]].tolist()) == key

    @rule()
    def renumber(self):
        used = sorted({held[2] for held in self.held.values()})
        numbers = np.full(self.codes, -1, np.int32)
        numbers[used] = np.arange(len(used))
        self.entries.recode(np.array(used, np.int64), numbers)
        self.codes = len(used)
        self.held = {
            key: (ts, end, int(numbers[code]), extra, note) for key, (ts, end, code, extra, note) in self.held.items()
        }

    @invariant()
    def same(self):
        entries = self.entries
        assert len(entries) == len(self.held)
        places = entries.all()
        found = {
            tuple(entries.ids[p].tolist()): (
                int(entries.times[p, 0]),
                int(entries.times[p, 1]),
                int(entries.links[p, 4]),
                int(entries.extras[self.extra][p]),
                int(entries.notes[p]),
            )
            for p in places
        }
        assert found == self.held
        codes = np.arange(len(entries.heads), dtype=np.int32)
        which, members = entries.members(codes)
        assert sorted(members.tolist()) == places.tolist()
        assert [int(entries.links[p, 4]) for p in members] == which.tolist()
        if self.held:
            keys = np.array(sorted(self.held), np.int64)
            assert entries.ids[entries.find(keys)].tolist() == keys.tolist()


TestEntries = AgainstADict.TestCase
TestEntries.settings = settings(max_examples=examples(30), stateful_step_count=25, deadline=None)


def test_codes_of_equal_keys_are_equal():
    coder = Coder(["int", "string"])
    a = coder.enter([pa.array([1, 1, None, None]), pa.array(["x", "x", None, None], pa.large_string())], 4)
    assert a.tolist() == [0, 0, 1, 1]
    assert [column.to_pylist() for column in coder.decode(np.array([1, 0]))] == [[None, 1], [None, "x"]]


def test_dead_codes_are_forgotten():
    coder = Coder(["string"])
    coder.enter([pa.array([f"k{n}" for n in range(100)], pa.large_string())], 100)
    assert coder.crowded
    used = np.zeros(128, np.bool_)
    used[[3, 50]] = True
    found = coder.renumber(used)
    assert found is not None
    kept, numbers = found
    assert kept.tolist() == [3, 50]
    assert coder.size == 2
    assert (numbers[3], numbers[50], numbers[4]) == (0, 1, -1)
    assert coder.enter([pa.array(["k50", "k4"], pa.large_string())], 2).tolist() == [1, 2]
    assert not coder.crowded


def test_most_codes_in_use_are_left_alone():
    coder = Coder(["int"])
    coder.enter([pa.array(range(100))], 100)
    assert coder.renumber(np.ones(100, np.bool_)) is None
    assert not coder.crowded


def test_a_coder_without_keys_has_one_code():
    coder = Coder([])
    assert coder.enter([], 3).tolist() == [0, 0, 0]
    assert coder.size == 1
    assert not coder.crowded
