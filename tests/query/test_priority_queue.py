"""The queue against a sorted list: whatever is added, taken and put back, the best entry comes next."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.query.priority_queue
from promising.query.priority_queue import Queue
from tests.tiers import examples

INF, NAN = math.inf, math.nan
ANY = np.uint8(255)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@contextmanager
def small(first: int, sampled: int) -> Iterator[None]:
    """Queues that put `first` entries in order at first, and look at `sampled` to choose the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.query.priority_queue, "FIRST", first)
        patch.setattr(promising.query.priority_queue, "SAMPLED", sampled)
        yield


class Model:
    """A queue, and beside it the same entries in a list. Every tie is different, so there is one right order."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.priority = np.empty(0)
        self.tie = np.empty(0, np.int64)
        self.state = np.empty(0, np.uint8)
        self.units = np.empty(0, np.int64)
        self.inside: list[int] = []
        self.out: list[int] = []

    def add(self, priority: list[float], tie: list[int], state: list[int] | None = None) -> None:
        first, n = len(self.priority), len(priority)
        self.priority = np.concatenate((self.priority, np.array(priority, np.float64)))
        self.tie = np.concatenate((self.tie, np.array(tie, np.int64)))
        self.state = np.concatenate((self.state, np.array(state or [1] * n, np.uint8)))
        self.units = np.concatenate((self.units, np.arange(n) % 4))
        self.queue.add(first, first + n, self.priority, self.tie)
        self.inside += range(first, first + n)
        self.check()

    def expected(self) -> list[int]:
        return sorted(self.inside, key=lambda e: (-self.priority[e], self.tie[e]))

    def pop(
        self, most_entries: int, most_units: int = 1 << 62, wanted: np.uint8 = ANY, above: float = NAN
    ) -> list[int]:
        columns = (self.priority, self.tie, self.state, wanted, self.units)
        taken: list[int] = self.queue.pop(*columns, most_units, most_entries, above).tolist()
        best: list[int] = []
        for e in self.expected()[:most_entries]:
            too_many = best and self.units[best].sum() + self.units[e] > most_units
            if too_many or self.priority[e] <= above or (wanted != ANY and self.state[e] != wanted):
                break
            best.append(e)
        assert taken == best[: len(taken)]
        assert taken or not best or not most_entries, "one at least comes if the best may"
        self.inside = [e for e in self.inside if e not in set(taken)]
        self.out += taken
        self.check()
        return taken

    def push(self, count: int, priority: list[float]) -> None:
        back, self.out = self.out[:count], self.out[count:]
        for e, p in zip(back, priority, strict=False):
            self.priority[e] = p
        self.queue.push(np.array(back, np.int32), self.priority, self.tie)
        self.inside += back
        self.check()

    def check(self) -> None:
        assert self.queue.size == len(self.inside)
        assert sorted(self.queue.members().tolist()) == sorted(self.inside)

    def best(self) -> None:
        expected = self.expected()
        assert self.queue.best(self.priority, self.tie) == (self.priority[expected[0]] if expected else None)
        self.check()

    def drain(self, step: int = 7) -> list[int]:
        order: list[int] = []
        while taken := self.pop(step):
            order += taken
        assert not self.inside
        return order


priority = st.one_of(st.sampled_from([-INF, INF, 0.0, -0.0, 1.0, 1.0, 1.0, 2.0]), st.floats(allow_nan=False))
limit = st.sampled_from([NAN, NAN, -INF, 0.0, 1.0, INF])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(priority, max_size=60)),
        st.tuples(
            st.just("pop"), st.tuples(st.integers(0, 25), st.integers(0, 20), st.sampled_from([0, 1, 255]), limit)
        ),
        st.tuples(st.just("push"), st.tuples(st.integers(0, 25), st.lists(priority, max_size=25))),
    ),
    max_size=20,
)


@settings(max_examples=examples(150))
@given(steps, st.sampled_from([1, 2, 5, 4096]), st.sampled_from([1, 3, 16]), st.integers(0, 1000))
def test_added_taken_and_put_back_in_any_turn(turns, first, sampled, seed):
    rng = np.random.default_rng(seed)
    ties = rng.permutation(np.concatenate(([LOWEST, HIGHEST], np.arange(-700, 700)))).tolist()
    with small(first, sampled):
        model = Model()
        for what, how in turns:
            if what == "add":
                mine = [ties.pop() for _ in how]
                model.add(how, mine, rng.integers(0, 2, len(how)).tolist())
            elif what == "pop":
                model.pop(how[0], how[1], np.uint8(how[2]), how[3])
            else:
                model.push(*how)
            if seed % 2:  # to look at it may put more in order
                model.best()
        model.drain()


@pytest.mark.parametrize("law", ["ties", "few values", "even", "rising", "falling", "all lowest", "all highest"])
def test_many_times_more_than_are_put_in_order_at_once(law):
    rng = np.random.default_rng(4)
    n = 900
    values = {
        "ties": np.zeros(n),
        "few values": rng.choice([-INF, 0.0, 3.0, INF], n),
        "even": rng.random(n),
        "rising": np.arange(n) / 7,
        "falling": -np.arange(n) / 7,
        "all lowest": np.full(n, -INF),
        "all highest": np.full(n, INF),
    }[law]
    with small(4, 8):
        model = Model()
        model.add(values[:700].tolist(), rng.permutation(n)[:700].tolist())
        model.pop(30)
        assert model.queue.waiting, "not all of them are in order"
        model.add(values[700:].tolist(), (rng.permutation(n)[:200] + n).tolist())
        model.push(30, rng.permutation(values)[:30].tolist())
        model.drain(50)


def test_only_what_is_reached_is_put_in_order():
    n = 40_000
    rng = np.random.default_rng(7)
    queue, priority, tie = Queue(), rng.random(n), rng.permutation(n)
    queue.add(0, n, priority, tie)
    assert queue.size == n and queue.heaped[0] == 0
    state, units = np.zeros(n, np.uint8), np.ones(n, np.int64)
    best = queue.pop(priority, tie, state, ANY, units, 1 << 62, 10, NAN)
    order = np.lexsort((tie, -priority))
    assert best.tolist() == order[:10].tolist()
    assert promising.query.priority_queue.FIRST // 2 < queue.heaped[0] < 2 * promising.query.priority_queue.FIRST
    taken = [best]
    while queue.size:
        taken.append(queue.pop(priority, tie, state, ANY, units, 1 << 62, 3000, NAN))
    assert np.concatenate(taken).tolist() == order.tolist()


def test_what_is_put_back_worse_than_the_border_waits_for_its_turn():
    with small(2, 64):
        model = Model()
        model.add([float(v) for v in range(40)], list(range(40)))
        assert model.pop(1) == [39]
        model.push(1, [0.5])
        assert model.drain(1) == [*range(38, 0, -1), 39, 0]


def test_what_is_put_back_better_than_all_comes_next():
    with small(2, 64):
        model = Model()
        model.add([float(v) for v in range(40)], list(range(40)))
        model.pop(3)
        model.push(3, [INF, 38.0, -INF])
        order = model.drain(1)
        assert order[:2] == [39, 38] and order[-1] == 37


def test_entries_that_come_when_all_others_are_in_order_or_gone():
    model = Model()
    model.add([2.0, 1.0], [0, 1])
    assert model.pop(1) == [0]
    model.add([3.0, 0.0, -INF], [2, 3, 4])
    assert model.drain(9) == [2, 1, 3, 4]
    model.add([1.0, 2.0], [5, 6])
    assert model.drain(9) == [6, 5]
    assert model.pop(5) == []


def test_the_columns_may_be_longer_than_the_queue():
    """Their owner makes room for entries to come; what stands there counts for nothing."""
    priority, tie = np.full(50, INF), np.arange(50)
    priority[:3] = [1.0, 3.0, 2.0]
    queue = Queue()
    queue.add(0, 3, priority, tie)
    taken = queue.pop(priority, tie, np.zeros(50, np.uint8), ANY, np.ones(50, np.int64), 9, 9, NAN)
    assert taken.tolist() == [1, 2, 0]


def test_of_a_fresh_queue_some_may_be_kept():
    with small(2, 4):
        model = Model()
        model.add([float(v % 5) for v in range(30)], list(range(30)))
        kept = [3, 29, 4, 10, 17, 12]
        model.queue.keep(np.array(kept, np.int32))
        model.inside = kept
        model.check()
        assert model.drain(2) == [4, 29, 3, 12, 17, 10]


def test_an_empty_queue():
    queue = Queue()
    none, ties = np.empty(0), np.empty(0, np.int64)
    queue.add(0, 0, none, ties)
    queue.push(np.empty(0, np.int32), none, ties)
    assert not queue.ready(none, ties)
    assert queue.best(none, ties) is None
    assert queue.size == 0 and queue.members().tolist() == []
    assert queue.pop(none, ties, np.empty(0, np.uint8), ANY, ties, 10, 10, NAN).tolist() == []
