"""The promising set: columns that keep what they were given, and entries that come best first."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.query.priority_queue
from promising.query.promising_set import ANY, READY, ROUGH, PromisingSet
from tests.tiers import examples

MANY = 1 << 62


def keyed(*hashes: int) -> Any:
    return np.array(hashes, np.int64)


def filled(priority: list[float], state: np.uint8 = READY) -> PromisingSet:
    """Entries of one side, with one tuple each, whose hash is their number."""
    made = PromisingSet(1)
    made.add(np.arange(len(priority)), [np.ones(len(priority), np.int64)], np.array(priority, np.float64), state)
    return made


def test_an_entry_stands_for_the_pairs_that_its_tuples_make():
    made = PromisingSet(2)
    made.add(keyed(7, -8), [keyed(3, 4), keyed(5, 0)], np.array([1.0, 2.0]), READY)
    assert made.units.tolist() == [15, 0]
    assert [c.tolist() for c in made.counts] == [[3, 4], [5, 0]]
    assert made.tie.tolist() == made.hash.tolist() == [7, -8], "ties go by the hash if nothing else is said"
    assert made.row.tolist() == [-1, -1] and [b.tolist() for b in made.bands] == [[0, 0], [0, 0]]
    assert made.state.tolist() == [READY, READY] and made.priority.tolist() == [1.0, 2.0]


def test_an_entry_may_be_one_tuple_and_of_one_granularity():
    made = PromisingSet(1)
    rows = np.array([40, 41], np.int32)
    made.add(keyed(5, 5), [keyed(1, 1)], np.array([2.0, 2.0]), ROUGH, row=rows, tie=keyed(9, 8), bands=[keyed(3, 1)])
    assert (made.row.tolist(), made.tie.tolist(), made.bands[0].tolist()) == ([40, 41], [9, 8], [3, 1])
    assert made.state.tolist() == [ROUGH, ROUGH]
    assert made.pop(ANY, MANY, 5).tolist() == [1, 0]


def test_the_columns_keep_what_they_have_while_they_grow():
    made = PromisingSet(2)
    told: list[tuple[int, ...]] = []
    rng = np.random.default_rng(2)
    for size in (0, 1, 3, 0, 50, 7, 400):
        columns = rng.integers(1, 100, (6, size))
        h, a, b, row, x, y = columns
        tie = h * 1000 + len(told) + np.arange(size)
        made.add(h, [a, b], h / 4, READY, row=row.astype(np.int32), tie=tie, bands=[x, y])
        told += zip(*columns.tolist(), (a * b).tolist(), (h / 4).tolist(), tie.tolist(), strict=True)
        if size == 3:
            made.reserve(20)
            made.reserve(5)
        found: list[Any] = [made.hash, *made.counts, made.row, *made.bands, made.units, made.priority, made.tie]
        assert list(zip(*(c.tolist() for c in found), strict=True)) == told
        assert len(made) == made.size == len(told)
    assert made.pop(ANY, MANY, 1000).tolist() == sorted(range(len(told)), key=lambda e: (-told[e][7], told[e][8]))
    assert len(made) == len(told) and made.size == 0, "what was taken keeps its columns"
    assert made.nbytes >= 59 * len(told)


def test_memory_is_asked_for_in_one_piece():
    made = PromisingSet(1)
    made.reserve(1000)
    before = made.nbytes - made._queue.nbytes
    for _ in range(10):
        made.add(np.arange(100), [np.ones(100, np.int64)], np.zeros(100), READY, tie=np.arange(100) + 1000 * len(made))
    assert made.nbytes - made._queue.nbytes == before


def test_entries_of_one_state_come_only_while_they_are_the_best():
    made = filled([5.0, 3.0, 1.0])
    made.add(keyed(10, 11), [keyed(1, 1)], np.array([4.0, 2.0]), ROUGH)
    assert made.pop(ROUGH, MANY, 9).tolist() == []
    assert made.pop(READY, MANY, 9).tolist() == [0]
    assert made.pop(READY, MANY, 9).tolist() == []
    assert made.pop(ROUGH, MANY, 9).tolist() == [3]
    assert made.pop(ANY, MANY, 2).tolist() == [1, 4]
    assert made.members().tolist() == [2]


def test_entries_come_up_to_so_many_units_and_one_at_least():
    made = PromisingSet(1)
    made.add(keyed(1, 2, 3, 4), [keyed(100, 10, 20, 1)], np.array([4.0, 3.0, 2.0, 1.0]), READY)
    assert [made.pop(READY, 30, 9).tolist() for _ in range(3)] == [[0], [1, 2], [3]]


def test_entries_come_while_they_are_over_a_limit():
    made = filled([9.0, 7.0, 5.0, -np.inf])
    assert made.beyond(8.5) and not made.beyond(9.0) and not made.beyond(np.inf)
    assert made.pop(ANY, MANY, 9, 5.0).tolist() == [0, 1]
    assert made.pop(ANY, MANY, 9, 5.0).tolist() == []
    assert made.beyond(-np.inf) and made.beyond(np.nan)
    assert made.pop(ANY, MANY, 9, -np.inf).tolist() == [2]
    assert not made.beyond(-np.inf) and made.beyond(np.nan)
    assert made.pop(ANY, MANY, 9).tolist() == [3]
    assert not made.beyond(np.nan), "nothing is left"


def test_an_entry_put_back_comes_at_its_new_priority():
    made = filled([9.0, 7.0, 5.0, 3.0], ROUGH)
    ids = made.pop(ANY, MANY, 2)
    made.priority[ids] = [4.0, 7.0]
    made.state[ids] = READY
    made.push(ids)
    assert made.size == 4
    assert made.pop(READY, MANY, 9).tolist() == [1]
    assert made.pop(ANY, MANY, 9).tolist() == [2, 0, 3]


def test_what_is_in_one_state_can_be_taken_out_at_once():
    made = filled([1.0, 2.0, 3.0])
    rough = [np.ones(4, np.int64)]
    made.add(keyed(30, 31, 32, 33), rough, np.arange(4.0), ROUGH, tie=keyed(4, -9, 8, 0))
    assert made.pop(ANY, MANY, 1).tolist() == [6], "of 3.0 twice the lower tie comes first"
    out = made.take_out(ROUGH)
    assert out.tolist() == [4, 3, 5], "in order of their ties"
    assert sorted(made.members().tolist()) == [0, 1, 2]
    made.push(out[:1])
    made.add(keyed(50), [keyed(1)], np.array([2.5]), READY)
    assert made.pop(ANY, MANY, 9).tolist() == [2, 7, 1, 4, 0]
    assert made.take_out(ROUGH).tolist() == []


def test_forgetting_begins_anew_behind_what_was_taken():
    made = filled([2.0, 1.0])
    assert made.pop(ANY, MANY, 2).tolist() == [0, 1]
    made.add(keyed(7, 8, 9), [keyed(1, 1, 1)], np.zeros(3), READY)
    made.forget(2)
    assert (len(made), made.size, made.members().tolist()) == (2, 0, [])
    assert made.hash.tolist() == [0, 1]
    made.add(keyed(8, 4), [keyed(6, 6)], np.array([0.0, 0.0]), ROUGH)
    assert made.hash.tolist() == [0, 1, 8, 4] and made.units.tolist() == [1, 1, 6, 6]
    assert made.state.tolist() == [READY, READY, ROUGH, ROUGH]
    assert made.pop(ANY, MANY, 9).tolist() == [3, 2]


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["pop", "out", "back"]), st.integers(0, 9)), max_size=15),
    st.integers(0, 999),
)
def test_any_turn_of_events(turns, seed):
    """As a list of entries would have it; `tie` numbers them, in a shuffled way."""
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.query.priority_queue, "FIRST", 3)
        made = PromisingSet(1)
        inside: set[int] = set()
        for fresh, what, count in turns:
            first, state = len(made), ROUGH if count % 2 else READY
            tie = (np.arange(first, first + fresh) * 7919) % 10007
            priority = rng.choice([-np.inf, 0.0, 1.0, 1.5, np.inf], fresh)
            made.add(np.arange(fresh), [np.ones(fresh, np.int64)], priority, state, tie=tie)
            inside |= set(range(first, first + fresh))
            order = sorted(inside, key=lambda e: (-made.priority[e], made.tie[e]))
            if what == "out":
                expected = sorted((e for e in inside if made.state[e] == state), key=lambda e: made.tie[e])
                assert made.take_out(state).tolist() == expected
                inside -= set(expected)
            else:
                taken = made.pop(ANY, MANY, count)
                assert taken.tolist() == order[: len(taken)] and (len(taken) or not count or not order)
                inside -= set(taken.tolist())
                if what == "back":
                    made.priority[taken] = rng.random(len(taken))
                    made.push(taken)
                    inside |= set(taken.tolist())
            assert sorted(made.members().tolist()) == sorted(inside) and made.size == len(inside)
