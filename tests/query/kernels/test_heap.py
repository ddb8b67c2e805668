"""The heap kernels against sorted lists."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.query.kernels import heap as kernels

pytestmark = pytest.mark.kernel

INF = math.inf
FIRST, LAST = -(1 << 63), (1 << 63) - 1
EVERYTHING = (-INF, LAST)
"""A border that nothing comes after."""

priorities = st.lists(st.sampled_from([-INF, -2.5, -0.0, 0.0, 1.0, 1.0 + 2**-52, 7.0, INF]), max_size=60)


def columns(values, seed=0):
    """Priorities as given, and ties that are all different, both ends of their range among them."""
    ties = np.arange(len(values)) - len(values) // 2
    ties[:1], ties[1:2] = FIRST, LAST
    return np.array(values, np.float64), np.random.default_rng(seed).permutation(ties)


def in_order(entries, priority, tie):
    return sorted(entries, key=lambda e: (-priority[e], tie[e]))


def popped(
    heap,
    size,
    priority,
    tie,
    border=EVERYTHING,
    state=None,
    wanted=255,
    units=None,
    most=1 << 62,
    above=math.nan,
    room=100,
):
    n = len(priority)
    state = np.zeros(n, np.uint8) if state is None else state
    units = np.ones(n, np.int64) if units is None else units
    out = np.full(room, -1, np.int32)
    taken = kernels.pop(
        heap, size, priority, tie, state, np.uint8(wanted), units, most, border[0], border[1], above, out
    )
    assert (out[taken:] == -1).all()
    return out[:taken].tolist()


def heaped(priority, tie):
    heap = np.arange(len(priority), dtype=np.int32)
    kernels.heapify(heap, len(heap), priority, tie)
    return heap


@pytest.mark.parametrize(
    ("a", "b", "first"),
    [
        ((2.0, 5), (1.0, 1), True),
        ((1.0, 1), (2.0, 5), False),
        ((1.0, 1), (1.0, 2), True),
        ((1.0, 2), (1.0, 1), False),
        ((1.0, 1), (1.0, 1), False),
        ((0.0, 2), (-0.0, 1), False),
        ((INF, LAST), (1e308, FIRST), True),
        ((-INF, FIRST), (-INF, LAST), True),
        ((-INF, FIRST), (-1e308, LAST), False),
    ],
)
def test_the_higher_priority_comes_first_then_the_lower_tie(a, b, first):
    priority, tie = np.array([a[0], b[0]]), np.array([a[1], b[1]])
    assert kernels.before(priority, tie, np.int32(0), np.int32(1)) == first
    assert kernels.within(*a, *b) == (first or a == b), "the border itself is within"


@given(priorities, st.integers(0, 9))
def test_a_heap_gives_its_entries_in_order(values, seed):
    priority, tie = columns(values, seed)
    heap = heaped(priority, tie)
    assert sorted(heap.tolist()) == list(range(len(values)))
    assert popped(heap, len(heap), priority, tie) == in_order(range(len(values)), priority, tie)


@given(priorities, st.integers(0, 60), st.integers(0, 9))
def test_pushing_is_as_good_as_making_it_anew(values, first, seed):
    priority, tie = columns(values, seed)
    n, first = len(values), min(first, len(values))
    heap = np.full(n, -1, np.int32)
    heap[:first] = np.arange(first)
    kernels.heapify(heap, first, priority, tie)
    assert kernels.push(heap, first, np.arange(first, n, dtype=np.int32), priority, tie) == n
    assert popped(heap, n, priority, tie) == in_order(range(n), priority, tie)


def test_an_entry_that_has_become_worse_sinks():
    priority, tie = columns(list(range(40)))
    heap = heaped(priority, tie)
    top = heap[0]
    for worse in (17.5, 3.5, -INF):
        priority[top] = worse
        heap = heaped(priority, tie)
        kernels.sift_down(heap, len(heap), 0, priority, tie)
    root = heap[0]
    priority[root] = 0.5
    kernels.sift_down(heap, len(heap), 0, priority, tie)
    assert popped(heap, len(heap), priority, tie) == in_order(range(40), priority, tie)


def test_only_the_first_of_a_heap_are_in_it():
    priority, tie = columns([1.0, 5.0, 3.0, 9.0, 9.0])
    heap = np.arange(5, dtype=np.int32)
    kernels.heapify(heap, 3, priority, tie)
    assert heap[3:].tolist() == [3, 4]
    assert popped(heap, 3, priority, tie) == [1, 2, 0]


def test_popping_stops_at_the_room_there_is_and_goes_on():
    priority, tie = columns([3.0, 1.0, 2.0, 5.0])
    heap = heaped(priority, tie)
    assert popped(heap, 4, priority, tie, room=0) == []
    assert popped(heap, 4, priority, tie, room=3) == [3, 0, 2]
    assert popped(heap, 1, priority, tie) == [1]
    assert popped(heap, 0, priority, tie) == []


def test_popping_stops_at_the_border():
    priority, tie = np.array([4.0, 3.0, 3.0, 3.0, 2.0]), np.array([0, 7, 5, 6, 0])
    for border, expected in [
        ((4.5, 0), []),
        ((4.0, -1), []),
        ((4.0, 0), [0]),
        ((3.0, 5), [0, 2]),
        ((3.0, 6), [0, 2, 3]),
        ((2.5, FIRST), [0, 2, 3, 1]),
        (EVERYTHING, [0, 2, 3, 1, 4]),
    ]:
        assert popped(heaped(priority, tie), 5, priority, tie, border) == expected


def test_popping_stops_at_another_state():
    priority, tie = columns([9.0, 8.0, 7.0, 6.0])
    state = np.array([1, 1, 0, 1], np.uint8)
    assert popped(heaped(priority, tie), 4, priority, tie, state=state, wanted=1) == [0, 1]
    assert popped(heaped(priority, tie), 4, priority, tie, state=state, wanted=0) == []
    assert popped(heaped(priority, tie), 4, priority, tie, state=state, wanted=255) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("above", "expected"),
    [(math.nan, [0, 1, 2, 3]), (-INF, [0, 1, 2]), (4.25, [0, 1]), (4.5, [0]), (INF, [])],
)
def test_popping_stops_at_a_priority_that_is_not_over_a_limit(above, expected):
    """Nothing is over infinity, and nothing that has the lowest priority is over it; NaN is no limit."""
    priority, tie = columns([INF, 4.5, 4.25, -INF])
    assert popped(heaped(priority, tie), 4, priority, tie, above=above) == expected


@pytest.mark.parametrize(("most", "expected"), [(0, [0]), (4, [0]), (5, [0]), (7, [0]), (8, [0, 1]), (9, [0, 1, 2])])
def test_popping_stops_at_the_units_wanted_but_takes_one_at_least(most, expected):
    priority, tie = columns([9.0, 8.0, 7.0, 6.0])
    units = np.array([5, 3, 1, 1 << 40])
    assert popped(heaped(priority, tie), 4, priority, tie, units=units, most=most) == expected


@given(priorities, st.integers(0, 60), st.integers(0, 60), st.integers(0, 9))
def test_what_comes_no_later_than_a_border_is_sorted_out(values, at, room, seed):
    priority, tie = columns([*values, 1.0], seed)
    n = len(priority)
    border = at % n
    pooled = np.random.default_rng(seed).integers(0, 2, n).astype(np.uint8)
    size = max(n - 1, 1)  # the last may be beyond what is looked at
    expected = [e for e in range(size) if pooled[e] and (-priority[e], tie[e]) <= (-priority[border], tie[border])]
    before, out = pooled.copy(), np.full(room, -1, np.int32)
    taken = kernels.sort_out(priority, tie, pooled, size, priority[border], tie[border], out)
    assert out[:taken].tolist() == expected[:room]
    before[expected[:room]] = 0
    assert pooled.tolist() == before.tolist()
